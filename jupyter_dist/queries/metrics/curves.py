"""A run's metrics as curves: kept in memory, extended as ranks log, thinned before they are sent."""

from __future__ import annotations

import math
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from ...errors import InputError
from ...folder import RankFolder, RunFolder
from ...job import Status
from ...record import reader
from ...record.growing_file import GrowingFile
from ...record.metrics.common_step import RecentPoints, departed
from ...record.reader import parse_lines
from ...text.search import pattern_process
from ..answers.metrics import BadRank, Curve, Curves, RankCurve
from ..logs.line_index import LineIndex, cut_text
from ..logs.time_index import times_of
from . import sent_curves
from .band_sums import BandSums
from .event_lines import block, table
from .joined_attempts import Part, joined
from .last_values import answer, attempts_of
from .series import Floats, Series
from .thinning import bare, share, thinned

__all__ = ["BAND_ABOVE", "curves", "refresh"]

_METRIC = b'"metric"'
BAND_ABOVE = 4
"""Largest number of ranks whose curves the view draws. For more ranks, the view draws a band around them."""
_MAX_NAMES = 500
_KEPT = 32
_MOST_POINTS = 4_000_000
"""Limit for all runs together, if there are several: 24 bytes per point."""
_PATTERN_LINE = 2000
_known: OrderedDict[tuple[Path, int], _Metrics] = OrderedDict()
_known_lock = threading.Lock()


class _Metrics:
    """All metrics of one attempt. `refresh` adds what was appended. Several threads may use it."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        job = reader.job(folder)
        self.lock = threading.Lock()
        self.attempt, self.world_size = attempt, 0
        self.is_over = False
        """Whether the attempt was over when its ranks were counted last."""
        self.series: dict[str, dict[int, Series]] = {}
        self.bands: dict[str, BandSums] = {}
        self.recent: dict[str, RecentPoints] = {}
        self.version = 0
        self.problem: str | None = None
        """Why `--metric` finds no more."""
        self._patterns = job.metrics
        self._folder = folder
        self._ranks: list[RankFolder] = []
        self._events: list[GrowingFile] = []
        self._logs: list[LineIndex] = []
        self._read: list[int] = []

    def grow(self, world_size: int) -> None:
        """Read this many ranks from now on. An elastic run may gain ranks."""
        for rank in range(self.world_size, world_size):
            place = self._folder.rank(self.attempt, rank)
            self._ranks.append(place)
            self._events.append(GrowingFile(place.events))
            if self._patterns:
                self._logs.append(LineIndex(place.output, raw=True))
                self._read.append(0)
        self.world_size = max(self.world_size, world_size)

    def refresh(self) -> None:
        before = self.version
        for rank, events in enumerate(self._events):
            while data := events.read():
                self.version += len(data)
                self._take_events(rank, data)
        if self._patterns:
            self._take_logs()
        if self.version != before:
            for recent in self.recent.values():
                recent.trim(len(self.recent), all_read=True)

    def _take_events(self, rank: int, data: bytes) -> None:
        if (found := block(data)) is not None:
            self._take_table(rank, *found)
            return
        lines = [line for line in data.split(b"\n") if _METRIC in line]
        found = table(lines) if lines else None
        if found is not None:
            self._take_table(rank, *found)
            return
        own: dict[str, Series] = {}
        starts: dict[str, int] = {}
        for event in parse_lines(lines):
            values, step, when = event.get("values"), event.get("step"), event.get("time")
            if event.get("kind") != "metric" or not isinstance(values, dict) or type(when) is not float:
                continue
            for name, value in values.items():
                try:
                    if name not in own:
                        own[name] = self._of(name, rank)
                        starts[name] = len(own[name].steps)
                    series = own[name]
                    number = float(value)  # float() accepts "NaN" and "Infinity"
                    series.append(step if type(step) is int else len(series.steps), number, when)
                except (TypeError, ValueError, OverflowError, KeyError):
                    continue  # not a number, or one name too many
        for name, start in starts.items():
            self._note_recent(name, rank, start)

    def _take_table(self, rank: int, names: list[str], rows: Floats) -> None:
        for place, name in enumerate(names):
            try:
                series = self._of(name, rank)
            except KeyError:
                continue  # one name too many
            start = len(series.steps)
            series.extend(rows[:, 1], rows[:, 2 + place], rows[:, 0])
            self._note_recent(name, rank, start)

    def _note_recent(self, name: str, rank: int, start: int) -> None:
        """Add the points from the index `start` on to the recent points."""
        series = self.series[name][rank]
        self.recent.setdefault(name, RecentPoints()).add(rank, series.steps[start:], series.values[start:])

    def _of(self, name: str, rank: int) -> Series:
        by_rank = self.series.get(name)
        if by_rank is None:
            if len(self.series) >= _MAX_NAMES:
                raise KeyError(name)
            by_rank = self.series[name] = {}
        found = by_rank.get(rank)
        if found is None:
            found = by_rank[rank] = Series()
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
                    series.append(len(series.steps) if step is None else step, value, when)
                except (ValueError, OverflowError, KeyError):
                    continue  # the pattern matches text that is not a number
                self._note_recent(name, rank, len(series.steps) - 1)

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
    ranks: str | None = None,
    since: str | None = None,
) -> Curves:
    """Return metrics with a band over all ranks, and with the curves of some ranks.

    By default the curves are of all attempts. A later attempt replaces points from its first step on.
    A rank's curve keeps its first and last point, and the lowest and highest point of every stretch.
    Values that are not finite are null, and are listed in `special`.

    Args:
        points: about the number of points of each curve. Of many ranks, each gets fewer.
        names: the metrics to return, by default all.
        ranks: the ranks whose points are returned: `0-3,7`, `all` or `none`. By default all ranks of a small
            run, and none of a run whose band is drawn.
        since: the `version` of an earlier answer. Then only what is new is returned; see `sent_curves`.
    """
    if not 10 <= points <= 100_000:
        raise InputError(f"points must be 10 to 100,000, got {points}")
    status = reader.status(folder)
    if attempt is None:
        attempts = attempts_of(folder, status)
    elif attempt not in folder.attempts():
        raise InputError(f"run {folder.id} has no attempt {attempt}; it has {folder.attempts()}")
    else:
        attempts = [attempt]
    without = departed(status) if attempts[-1] == status.attempt else frozenset()
    read = {number: _of_attempt(folder, number) for number in attempts}
    with ExitStack() as locks:
        for metrics in read.values():
            locks.enter_context(metrics.lock)
            _extend(metrics, folder, status)
        size = metrics.world_size
        lines = _ranks(ranks, size)
        versions = (without, *((number, metrics.version) for number, metrics in read.items()))
        state = (folder.path, attempt, points, None if names is None else tuple(names), lines, versions)
        known = sent_curves.current(since, state)
        if known is not None:
            return known
        parts: dict[str, list[Part]] = {}
        for number, metrics in read.items():
            for name, by_rank in metrics.series.items():
                last = metrics.recent[name].last(without if number == attempts[-1] else ())
                parts.setdefault(name, []).append(Part(number, by_rank, last))
        found: Curves = {
            "attempt": attempts[-1],
            "names": list(parts),
            "problem": metrics.problem,
            "bad": _bad(read[attempts[-1]]),
            "curves": [
                _curve(name, found, points, lines, banded=size > BAND_ABOVE, sums=_sums(read, name, found))
                for name, found in parts.items()
                if names is None or name in names
            ],
        }
    return sent_curves.reduced(found, since, state)


def _ranks(text: str | None, size: int) -> frozenset[int]:
    """Return the ranks of a text such as `0-3,7`."""
    if text == "all" or (text is None and size <= BAND_ABOVE):
        return frozenset(range(size))
    found: set[int] = set()
    for part in (text or "none").split(","):
        first, _, last = part.partition("-")
        if part != "none":
            try:
                found.update(range(max(0, int(first)), min(size, int(last or first) + 1)))
            except ValueError:
                raise InputError(f"ranks must be all, none, or numbers such as 0-3,7; got {text!r}") from None
    return frozenset(found)


def _bad(metrics: _Metrics) -> list[BadRank]:
    """Return the ranks with a metric whose last values are not finite, each with the first such metric."""
    found: dict[int, BadRank] = {}
    for name, by_rank in metrics.series.items():
        for rank, series in by_rank.items():
            if rank in found or not series.values or math.isfinite(series.values[-1]):
                continue
            bad = series.not_finite()
            if bad is not None and bad["since"] is not None:
                found[rank] = {
                    "rank": rank,
                    "name": name,
                    "value": bad["last"]["value"],
                    "since": bad["since"],
                }
    return sorted(found.values(), key=lambda one: one["rank"])


def _sums(read: Mapping[int, _Metrics], name: str, parts: list[Part]) -> BandSums:
    """Return the sums of a metric. Those of one attempt grow with it; those of several are made anew."""
    return read[parts[0].attempt].bands.setdefault(name, BandSums()) if len(parts) == 1 else BandSums()


def _curve(
    name: str, parts: list[Part], points: int, lines: frozenset[int], *, banded: bool, sums: BandSums
) -> Curve:
    by_rank, last, starts = joined(parts)
    until = math.inf if last is None else last.step
    asked = sum(rank in lines for rank in by_rank)
    ranks: list[RankCurve] = []
    for rank, series in by_rank.items():
        if rank in lines:
            value = math.nan if last is None else last.values.get(rank, math.nan)
            curve = thinned(rank, series, share(points, asked))
            ranks.append({**curve, "last": value if math.isfinite(value) else None})
        elif "not_finite" in (curve := bare(rank, series)):
            ranks.append(curve)
    found: Curve = {"name": name, "ranks": ranks, "band": None, "last": answer(last)}
    if banded or len(by_rank) > 1:
        sums.take(by_rank)
        found["band"] = sums.band(by_rank, points, until)
    return {**found, "attempts": starts} if starts else found


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
    if not metrics.is_over:
        metrics.grow(reader.rank_count_of(folder, status, metrics.attempt))
        metrics.is_over = metrics.attempt < status.attempt
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
