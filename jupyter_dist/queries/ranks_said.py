"""What ranks said besides their logs and metrics: progress, notes, results."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from ..folder import RunFolder
from ..text.bar import Bar
from ..text.safe import one_line
from .answers import Progress, RankProgress
from .appended import Appended, parse_lines

__all__ = ["Said", "said", "slowest"]

_PROGRESS_TAIL = 64 << 10
_MAX_BARS = 16
_MAX_NOTES = 50
_MAX_REPR = 20_000
_KEPT = 64
_WORDS = (b'"progress"', b'"note"', b'"result"')
_known: OrderedDict[tuple[Path, int], Said] = OrderedDict()
_known_lock = threading.Lock()


class Said:
    """The events of one attempt other than metrics, up to the last `refresh`. Used by several threads."""

    def __init__(self, folder: RunFolder, attempt: int, world_size: int) -> None:
        self._lock = threading.Lock()
        self._folder, self._attempt = folder, attempt
        self._files: list[Appended] = []
        self._bars: list[dict[int, Bar]] = []
        self.grow(world_size)
        self.notes: dict[str, list[int]] = {}
        """Text → the ranks that said it."""
        self.results: dict[int, dict[str, Any]] = {}
        """Rank → `repr`, `bytes`, `error`."""

    def grow(self, world_size: int) -> None:
        """Read that many ranks from now on: to an elastic run some are added."""
        with self._lock:
            for rank in range(len(self._files), world_size):
                self._files.append(Appended(self._folder.rank(self._attempt, rank).events))
                self._bars.append({})

    def refresh(self, *, progress_only: bool = False) -> Said:
        """Read what is new. `progress_only`: of files not read yet only the end, for a list of runs."""
        with self._lock:
            for rank, file in enumerate(self._files):
                if progress_only and file.offset == 0:
                    tail = Appended(file.path)
                    tail.skip_to_tail(_PROGRESS_TAIL)
                    if tail.offset:
                        self._bars[rank].clear()
                        self._take(rank, tail.read())
                        continue
                while data := file.read():
                    self._take(rank, data)
        return self

    def _take(self, rank: int, data: bytes) -> None:
        if not any(word in data for word in _WORDS):
            return
        lines = [line for line in data.split(b"\n") if any(word in line[:200] for word in _WORDS)]
        for event in parse_lines(lines):
            kind = event.get("kind")
            if kind == "progress":
                self._take_progress(rank, event)
            elif kind == "note" and (text := event.get("text")) and len(self.notes) < _MAX_NOTES:
                ranks = self.notes.setdefault(one_line(str(text), 500), [])
                if rank not in ranks:
                    ranks.append(rank)
            elif kind == "result":
                error = event.get("error")
                self.results[rank] = {
                    "repr": str(event.get("repr", ""))[:_MAX_REPR],
                    "error": None if error is None else str(error)[:_MAX_REPR],
                    "bytes": _number(event.get("bytes")),
                }

    def _take_progress(self, rank: int, event: dict[str, Any]) -> None:
        key, n, when = event.get("id"), _number(event.get("n")), _number(event.get("time"))
        if not isinstance(key, int) or n is None or when is None:
            return  # ranks write what they like
        bars = self._bars[rank]
        total = _number(event.get("total"))
        desc = one_line(str(event.get("desc") or ""), 80)
        bars.setdefault(key, Bar()).take(when, n, total if total and total > 0 else None, desc)
        if len(bars) > _MAX_BARS:
            del bars[min(bars, key=lambda k: bars[k].samples[-1][0])]

    def progress(self) -> list[RankProgress]:
        """Each rank's bar: the outermost that is under way, else the one that moved last."""
        found: list[RankProgress] = []
        with self._lock:
            for rank, bars in enumerate(self._bars):
                if bars:
                    active = [key for key in sorted(bars) if not bars[key].done]
                    key = active[0] if active else max(bars, key=lambda k: bars[k].samples[-1][0])
                    found.append({"rank": rank, "id": key, **_shown(bars[key])})
        return found


def _shown(bar: Bar) -> Progress:
    return {
        "n": _short(bar.n),
        "total": None if bar.total is None else _short(bar.total),
        "desc": bar.desc,
        "rate": bar.rate(),
    }


def said(folder: RunFolder, attempt: int, world_size: int) -> Said:
    """What this process keeps of an attempt; not refreshed."""
    key = (folder.path, attempt)
    with _known_lock:
        found = _known.pop(key, None) or Said(folder, attempt, world_size)
        _known[key] = found
        while len(_known) > _KEPT:
            _known.popitem(last=False)
    found.grow(world_size)
    return found


def slowest(bars: list[RankProgress]) -> RankProgress | None:
    """The bar of the rank that is least far."""
    if not bars:
        return None
    least = min(bars, key=lambda bar: (bar["n"] / bar["total"] if bar["total"] else bar["n"], bar["rank"]))
    return {
        "rank": least["rank"],
        "n": least["n"],
        "total": least["total"],
        "desc": least["desc"],
        "rate": least["rate"],
    }


def _number(value: object) -> float | None:
    """The number that it is; None for anything else, and for what no view can show."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return value if -1e15 < value < 1e15 else None


def _short(value: float) -> float:
    return int(value) if value == int(value) else value
