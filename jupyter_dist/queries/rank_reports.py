"""Reports of ranks besides logs and metrics: progress, notes, results and rich output."""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from ..folder import RunFolder
from ..record.growing_file import GrowingFile
from ..record.hints import MARK, Hints
from ..record.metrics.digest_file import DigestFile
from ..record.outputs import result_outlines
from ..record.reader import parse_lines
from ..record.steps.step_times import RunSteps
from ..text.progress_bar import Bar, behind, finite
from ..text.safe import one_line
from ..worker.output import events
from .answers.ranks import Progress, RankProgress
from .rank_displays import RanksShown

__all__ = ["RankReports", "said"]

_PROGRESS_TAIL = 64 << 10
_MAX_BARS = 16
_MAX_INNER = 4
_MAX_TEXT = 80
_MAX_NOTES = 50
_MAX_REPR = 20_000
_KEPT = 64
_METRIC = b'"kind":"metric","step":'
_WORD = re.compile(rb'"(?:progress|note|result|steps)"')
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
        self._shown_last: tuple[object, RankProgress] | None = None
        """The loop and the bar that `slowest` has returned last."""
        self._shown_to: list[int] = []
        """By rank: the offset in the events up to which rich output has been read."""
        self._in_digest: bool | None = None
        """Whether a digest file has the places of rich output. None if the file was not looked for yet."""
        self.shown = RanksShown()
        """Rich output of the ranks."""
        self.grow(world_size)
        self.notes: dict[str, list[int]] = {}
        """Text → the ranks that reported it."""
        self._hints = Hints()
        self.results: dict[int, dict[str, Any]] = {}
        """Rank → `repr`, `bytes`, `error`, `content`, `outline`."""
        self.steps = RunSteps()
        """Where the time of the ranks' steps goes."""

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
        """Read only rich output and hints. If a digest file has their places, other lines are not read."""
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
        if MARK in data:
            for event in parse_lines([line for line in data[known:].split(b"\n") if MARK in line]):
                self._hints.take(rank, event)

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
            elif kind == events.STEPS:
                self.steps.take(rank, event)
            elif kind == "result":
                error = event.get("error")
                self.results[rank] = {
                    "repr": str(event.get("repr", ""))[:_MAX_REPR],
                    "error": None if error is None else str(error)[:_MAX_REPR],
                    "bytes": finite(event.get("bytes")),
                    "content": event.get("content"),
                    "outline": result_outlines.checked(event.get("outline")),
                }

    def _take_progress(self, rank: int, event: dict[str, Any]) -> None:
        key, bars = event.get("id"), self._bars[rank]
        if not isinstance(key, int):
            return
        bar = bars.get(key) or Bar()
        if not bar.take(event, _MAX_TEXT):
            return
        self._changed.add(rank)
        bars[key] = bar
        if len(bars) > _MAX_BARS:
            del bars[min(bars, key=lambda k: bars[k].samples[-1][0])]

    def hints(self) -> list[str]:
        """Return the hints on mistakes that raised no error."""
        with self._lock:
            return [str(hint) for hint in self._hints.found()]

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

    def slowest(self) -> RankProgress | None:
        """Return the bar of the rank that is behind the others. Within one loop its count never decreases."""
        with self._lock:
            bars = {rank: _outer(own)[0] for rank, own in enumerate(self._bars) if own}
            if not bars:
                return None
            rank = behind(bars)
            bar = bars[rank]
            # A rank may begin a loop after the other ranks' bars were shown.
            if (
                self._shown_last is None
                or self._shown_last[0] != bar.loop
                or bar.n >= self._shown_last[1]["n"]
            ):
                shown: Any = {"rank": rank, **_shown(bar)}
                self._shown_last = bar.loop, shown
            return self._shown_last[1]


def _outer(bars: dict[int, Bar]) -> tuple[Bar, list[Bar]]:
    """Return the outermost unfinished bar and the bars within it. If all are done, the latest bar."""
    active = [bars[key] for key in sorted(bars) if not bars[key].done]
    if not active:
        return max(bars.values(), key=lambda bar: bar.samples[-1][0]), []
    # A bar that began before the outer one is left from an earlier loop.
    return active[0], [bar for bar in active[1:] if bar.began >= active[0].began][:_MAX_INNER]


def _row(rank: int, bars: dict[int, Bar]) -> RankProgress:
    outer, within = _outer(bars)
    inner = [_shown(bar) for bar in within]
    # Ids of bars are used again, and the time at which a bar began is not.
    bar: RankProgress = {"rank": rank, "id": round(outer.began * 1000), "inner": inner, **_shown(outer)}
    if not inner:
        del bar["inner"]
    return bar


def _read(path: str, first: int, end: int) -> bytes:
    try:
        with open(path, "rb") as file:
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


def _short(value: float) -> float:
    return int(value) if value == int(value) else value
