"""A run's metrics as curves: kept in memory, extended as ranks log, thinned before they are sent."""

from __future__ import annotations

import math
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...folder import RankFolder, RunFolder
from ...job import Status, rank_count
from ...record import reader
from ...record.growing_file import GrowingFile
from ...record.reader import parse_lines
from ...text import pattern_process
from ..answers.metrics import Curves, CurvesUnchanged
from ..logs.line_index import LineIndex, cut_text
from ..logs.time_index import times_of
from .event_lines import block, table
from .thinning import Floats, band, share, thinned

__all__ = ["curves", "refresh"]

_METRIC = b'"metric"'
_BAND_ABOVE = 4
_MAX_NAMES = 500
_KEPT = 8
_MOST_POINTS = 4_000_000
"""Limit for all runs together, if there are several: 24 bytes per point."""
_PATTERN_LINE = 2000
_known: OrderedDict[tuple[Path, int], _Metrics] = OrderedDict()
_known_lock = threading.Lock()


@dataclass
class _Series:
    """One metric of one rank, as it was logged."""

    steps: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    times: array[float] = field(default_factory=lambda: array("d"))

    def arrays(self) -> tuple[Floats, Floats, Floats]:
        # Copies, because an array cannot grow while numpy has a view of it.
        return np.array(self.steps), np.array(self.values), np.array(self.times)


class _Metrics:
    """All metrics of one attempt. `refresh` adds what was appended. Several threads may use it."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        job = reader.job(folder)
        self.lock = threading.Lock()
        self.world_size = 0
        self.series: dict[str, dict[int, _Series]] = {}
        self.version = 0
        self.problem: str | None = None
        """Why `--metric` finds no more."""
        self._patterns = job.metrics
        self._folder, self._attempt = folder, attempt
        self._ranks: list[RankFolder] = []
        self._events: list[GrowingFile] = []
        self._logs: list[LineIndex] = []
        self._read: list[int] = []

    def grow(self, world_size: int) -> None:
        """Read this many ranks from now on. An elastic run may gain ranks."""
        for rank in range(self.world_size, world_size):
            place = self._folder.rank(self._attempt, rank)
            self._ranks.append(place)
            self._events.append(GrowingFile(place.events))
            if self._patterns:
                self._logs.append(LineIndex(place.output, raw=True))
                self._read.append(0)
        self.world_size = max(self.world_size, world_size)

    def refresh(self) -> None:
        for rank, events in enumerate(self._events):
            while data := events.read():
                self.version += len(data)
                self._take_events(rank, data)
        if self._patterns:
            self._take_logs()

    def _take_events(self, rank: int, data: bytes) -> None:
        if (found := block(data)) is not None:
            self._take_table(rank, *found)
            return
        lines = [line for line in data.split(b"\n") if _METRIC in line]
        found = table(lines) if lines else None
        if found is not None:
            self._take_table(rank, *found)
            return
        own: dict[str, tuple[Any, ...]] = {}
        for event in parse_lines(lines):
            values, step, when = event.get("values"), event.get("step"), event.get("time")
            if event.get("kind") != "metric" or not isinstance(values, dict) or type(when) is not float:
                continue
            for name, value in values.items():
                try:
                    if name not in own:
                        series = self._of(name, rank)
                        own[name] = series.steps.append, series.values.append, series.times.append, series
                    add_step, add_value, add_time, series = own[name]
                    number = float(value)  # float() accepts "NaN" and "Infinity"
                    add_step(step if type(step) is int else len(series.steps))
                except (TypeError, ValueError, OverflowError, KeyError):
                    continue  # not a number, or one name too many
                add_value(number)
                add_time(when)

    def _take_table(self, rank: int, names: list[str], rows: Floats) -> None:
        for place, name in enumerate(names):
            try:
                series = self._of(name, rank)
            except KeyError:
                continue  # one name too many
            for column, kept in ((1, series.steps), (2 + place, series.values), (0, series.times)):
                kept.frombytes(np.ascontiguousarray(rows[:, column]).tobytes())

    def _of(self, name: str, rank: int) -> _Series:
        by_rank = self.series.get(name)
        if by_rank is None:
            if len(self.series) >= _MAX_NAMES:
                raise KeyError(name)
            by_rank = self.series[name] = {}
        found = by_rank.get(rank)
        if found is None:
            found = by_rank[rank] = _Series()
        return found

    def _take_logs(self) -> None:
        """Add what `--metric` finds in lines finished since the last call."""
        found: dict[int, list[tuple[int, str, str, str | None]]] = {}
        try:
            for (rank, end), name, number, at in pattern_process.values(self._new_lines(), self._patterns):
                found.setdefault(rank, []).append((end, name, number, at))
        except (TimeoutError, OSError) as error:
            self.problem = f"--metric {', '.join(self._patterns)}: {error}"
            self._patterns = {}
            self.version += 1
        for rank, rows in found.items():
            times = times_of(self._ranks[rank].times, [row[0] for row in rows], default=math.nan)
            for (_, name, number, at), when in zip(rows, times, strict=True):
                try:
                    value = float(number)
                    step = int(at) if at else None
                    series = self._of(name, rank)
                    series.steps.append(len(series.steps) if step is None else step)
                except (ValueError, OverflowError, KeyError):
                    continue  # the pattern matches text that is not a number
                series.values.append(value)
                series.times.append(when)

    def _new_lines(self) -> Iterator[tuple[tuple[int, int], str]]:
        for rank, log in enumerate(self._logs):
            start, count = self._read[rank], log.refresh()
            self.version += max(0, count - start)
            self._read[rank] = count
            for line in log.read(start, count - start):
                yield (rank, line.end), cut_text(line, _PATTERN_LINE)[0]


def curves(
    folder: RunFolder,
    attempt: int | None = None,
    points: int = 2000,
    names: Sequence[str] | None = None,
    version: str | None = None,
) -> Curves | CurvesUnchanged:
    """Return every metric with a curve per rank, thinned to about `points`, fewer for many ranks.

    A thinned curve keeps its first and last point, and the lowest and highest point of every stretch.
    Values that are not finite are null, and are listed in `special`.
    `version`: the version of an earlier answer to the same question. If that answer is still right, the
    result is `{"unchanged": true}`.
    """
    if not 10 <= points <= 100_000:
        raise InputError(f"points must be 10 to 100,000, got {points}")
    status = reader.status(folder)
    if attempt is None:
        attempt = status.attempt
    elif attempt not in folder.attempts():
        raise InputError(f"run {folder.id} has no attempt {attempt}; it has {folder.attempts()}")
    metrics = _of_attempt(folder, attempt)
    with metrics.lock:
        _extend(metrics, folder, status)
        current = f"{attempt}-{metrics.version}"
        if version == current:
            return {"version": current, "unchanged": True}
        known = list(metrics.series)
        chosen = {
            name: {rank: series.arrays() for rank, series in sorted(metrics.series[name].items())}
            for name in known
            if names is None or name in names
        }
    return {
        "version": current,
        "attempt": attempt,
        "names": known,
        "problem": metrics.problem,
        "curves": [
            {
                "name": name,
                "ranks": [
                    thinned(rank, *arrays, share(points, len(by_rank))) for rank, arrays in by_rank.items()
                ],
                "band": band(by_rank, points) if metrics.world_size > _BAND_ABOVE else None,
            }
            for name, by_rank in chosen.items()
        ],
    }


def refresh(
    folder: RunFolder, attempt: int
) -> dict[str, dict[int, tuple[array[float], array[float], array[float]]]]:
    """Read what was logged since the last call. Returns all steps, values and times by name and rank.

    The returned arrays may grow when more is read.
    """
    metrics = _of_attempt(folder, attempt)
    with metrics.lock:
        _extend(metrics, folder, reader.status(folder))
        return {
            name: {rank: (series.steps, series.values, series.times) for rank, series in by_rank.items()}
            for name, by_rank in metrics.series.items()
        }


def _extend(metrics: _Metrics, folder: RunFolder, status: Status) -> None:
    metrics.grow(rank_count(reader.job(folder), status))
    metrics.refresh()


def _of_attempt(folder: RunFolder, attempt: int) -> _Metrics:
    key = (folder.path, attempt)
    with _known_lock:
        found = _known.pop(key, None) or _Metrics(folder, attempt)
        _known[key] = found
        while len(_known) > _KEPT or (len(_known) > 1 and _points() > _MOST_POINTS):
            _known.popitem(last=False)
    return found


def _points() -> int:
    return sum(
        len(s.steps) for m in list(_known.values()) for r in list(m.series.values()) for s in list(r.values())
    )
