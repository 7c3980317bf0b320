"""Reports of ranks besides logs and metrics: progress, notes, results and rich output."""

from __future__ import annotations

import math
import os
import re
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from ..folder import RunFolder
from ..record.growing_file import GrowingFile
from ..record.metrics.digest_file import DigestFile
from ..record.outputs import result_outlines
from ..record.reader import parse_lines
from ..text.progress_bar import Bar
from ..text.safe import one_line
from .answers.ranks import Progress, RankProgress
from .rank_displays import RanksShown

__all__ = ["RankReports", "said", "slowest"]

_PROGRESS_TAIL = 64 << 10
_MAX_BARS = 16
_MAX_INNER = 4
_MAX_NOTES = 50
_MAX_REPR = 20_000
_KEPT = 64
_METRIC = b'"kind":"metric","step":'
_WORD = re.compile(rb'"(?:progress|note|result)"')
_known: OrderedDict[tuple[Path, int], RankReports] = OrderedDict()
_known_lock = threading.Lock()


class RankReports:
    """Events of one attempt, without metrics, up to the last `refresh`. Several threads may use it."""

    def __init__(self, folder: RunFolder, attempt: int, world_size: int) -> None:
        self._lock = threading.Lock()
        self._folder, self._attempt = folder, attempt
        self._files: list[GrowingFile] = []
        self._bars: list[dict[int, Bar]] = []
        self._rows: dict[int, RankProgress] = {}
        """By rank: what `progress` returns, without the ranks whose bars have changed since."""
        self._changed: set[int] = set()
        self._shown_to: list[int] = []
        """By rank: the offset in the events up to which rich output has been read."""
        self._in_digest: bool | None = None
        """Whether a digest file has the places of rich output. None if the file was not looked for yet."""
        self.shown = RanksShown()
        """Rich output of the ranks."""
        self.grow(world_size)
        self.notes: dict[str, list[int]] = {}
        """Text → the ranks that reported it."""
        self.results: dict[int, dict[str, Any]] = {}
        """Rank → `repr`, `bytes`, `error`, `content`, `outline`."""

    def grow(self, world_size: int) -> None:
        """Read this many ranks from now on. An elastic run may gain ranks."""
        with self._lock:
            for rank in range(len(self._files), world_size):
                folder = self._folder.rank(self._attempt, rank)
                self._files.append(GrowingFile(folder.events))
                self.shown.grow(folder)
                self._bars.append({})
                self._shown_to.append(0)

    def refresh(self, *, progress_only: bool = False) -> RankReports:
        """Read new events.

        `progress_only`: of files not read yet, read only the end. A list of runs needs no more.
        """
        with self._lock:
            for rank, file in enumerate(self._files):
                if progress_only and file.offset == 0:
                    tail = GrowingFile(file.path)
                    tail.skip_to_tail(_PROGRESS_TAIL)
                    if tail.offset:
                        self._bars[rank].clear()
                        self._changed.add(rank)
                        self._take(rank, tail.read())
                        continue
                while data := file.read():
                    if data.count(_METRIC) == data.count(b"\n"):
                        continue  # only metrics, as in most large pieces
                    self._take(rank, data)
                    self._take_shown(rank, data, file.offset - len(data))
        return self

    def refresh_shown(self) -> RankReports:
        """Read only rich output. If a digest file has its places, other lines are not read."""
        if not self._has_digest():
            return self.refresh()
        with self._lock:
            for rank, file in enumerate(self._files):
                rest = GrowingFile(file.path)
                rest.offset = max(self._shown_to[rank], file.offset)
                while data := rest.read():
                    self._take_shown(rank, data, rest.offset - len(data))
                self._shown_to[rank] = rest.offset
        return self

    def _has_digest(self) -> bool:
        with self._lock:
            if self._in_digest is None and not any(file.offset for file in self._files):
                kept = DigestFile(self._folder, self._attempt, len(self._files))
                self._in_digest = kept.load()
                for rank, places in enumerate(kept.shown):
                    for first, end in places:
                        self._take_shown(rank, _read(self._files[rank].path, first, end), first)
                    self._shown_to[rank] = kept.offsets[rank]
            return bool(self._in_digest)

    def _take_shown(self, rank: int, data: bytes, offset: int) -> None:
        known = max(0, self._shown_to[rank] - offset)
        self.shown.take(rank, data[known:], offset + known)

    def _take(self, rank: int, data: bytes) -> None:
        if not _WORD.search(data):
            return
        lines = [line for line in data.split(b"\n") if _WORD.search(line, 0, 200)]
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
                    "content": event.get("content"),
                    "outline": result_outlines.checked(event.get("outline")),
                }

    def _take_progress(self, rank: int, event: dict[str, Any]) -> None:
        key, n, when = event.get("id"), _number(event.get("n")), _number(event.get("time"))
        if not isinstance(key, int) or n is None or when is None:
            return  # a rank may write anything
        self._changed.add(rank)
        bars = self._bars[rank]
        total = _number(event.get("total"))
        desc = one_line(str(event.get("desc") or ""), 80)
        bar = bars.setdefault(key, Bar())
        bar.take(when, n, total if total and total > 0 else None, desc)
        note, unit = event.get("note") or "", event.get("unit") or ""
        bar.say(one_line(str(note), 80), one_line(str(unit), 20), event.get("closed") is True)
        if len(bars) > _MAX_BARS:
            del bars[min(bars, key=lambda k: bars[k].samples[-1][0])]

    def progress(self) -> list[RankProgress]:
        """Return each rank's outermost unfinished bar with its inner bars.

        If all are done, the latest bar.
        """
        with self._lock:
            for rank in self._changed:
                self._rows.pop(rank, None)
                if self._bars[rank]:
                    self._rows[rank] = _row(rank, self._bars[rank])
            self._changed.clear()
            return [self._rows[rank] for rank in sorted(self._rows)]


def _row(rank: int, bars: dict[int, Bar]) -> RankProgress:
    active = [key for key in sorted(bars) if not bars[key].done]
    key = active[0] if active else max(bars, key=lambda k: bars[k].samples[-1][0])
    inner = [_shown(bars[within]) for within in active[1 : 1 + _MAX_INNER]]
    bar: RankProgress = {"rank": rank, "id": key, "inner": inner, **_shown(bars[key])}
    if not inner:
        del bar["inner"]
    return bar


def _read(path: Path, first: int, end: int) -> bytes:
    try:
        with path.open("rb") as file:
            return os.pread(file.fileno(), end - first, first)
    except OSError:
        return b""  # the run is being removed


def _shown(bar: Bar) -> Progress:
    shown: Progress = {
        "n": _short(bar.n),
        "total": None if bar.total is None else _short(bar.total),
        "desc": bar.desc,
        "rate": bar.rate(),
    }
    if bar.note:
        shown["note"] = bar.note
    if bar.unit:
        shown["unit"] = bar.unit
    return shown


def said(folder: RunFolder, attempt: int, world_size: int) -> RankReports:
    """Return this process's reports of an attempt, without refreshing them."""
    key = (folder.path, attempt)
    with _known_lock:
        found = _known.pop(key, None) or RankReports(folder, attempt, world_size)
        _known[key] = found
        while len(_known) > _KEPT:
            _known.popitem(last=False)
    found.grow(world_size)
    return found


def slowest(bars: list[RankProgress]) -> RankProgress | None:
    """Return the bar of the rank with the least progress."""
    if not bars:
        return None
    least = min(bars, key=lambda bar: (bar["n"] / bar["total"] if bar["total"] else bar["n"], bar["rank"]))
    told = least.copy()
    told.pop("id", None)
    told.pop("inner", None)
    return told


def _number(value: object) -> float | None:
    """Return the value if it is a number that a view can show, else None."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return value if -1e15 < value < 1e15 else None


def _short(value: float) -> float:
    return int(value) if value == int(value) else value
