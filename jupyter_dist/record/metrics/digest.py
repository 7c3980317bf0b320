"""Digest of a run's metrics for a page about the run: short curves and last values.

The digest grows as points arrive. It is the same however the points are divided into calls. Ten million
points need no more space than ten thousand.
This module needs no numpy, because the supervisor has none (supervise/digest_update.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .common_step import RecentPoints

__all__ = ["LINES", "Band", "Digest", "Line", "Metric"]

LINES = 8
"""Up to this number of ranks, each rank has its own line. For more ranks, the page shows a band."""
_STRETCHES = 128
_BAND_ROWS = 64

Point = tuple[float, float]


@dataclass
class Line:
    """Curve of finite values: the lowest and the highest point of each stretch of `width` points."""

    width: int = 1
    """Points in a stretch, a power of two."""
    filled: int = 0
    """Points in the last stretch."""
    stretches: list[tuple[float, float, float, float]] = field(default_factory=list)
    """Step and value of two points, in the order of their arrival.

    If a stretch has only one value, both points are the same. Of equal values the first counts.
    """

    def extend(self, steps: Sequence[float], values: Sequence[float]) -> None:
        at, stretches = 0, self.stretches
        while at < len(values):
            if not stretches or self.filled == self.width:
                if len(stretches) == _STRETCHES:
                    self._widen()
                    continue
                end = min(len(values), at + self.width)
                stretches.append(_extremes(steps, values, at, end))
                self.filled = end - at
            else:
                end = min(len(values), at + self.width - self.filled)
                stretches[-1] = _joined(stretches[-1], _extremes(steps, values, at, end))
                self.filled += end - at
            at = end

    def _widen(self) -> None:
        """Join each pair of stretches. All stretches are full before and after."""
        pairs = zip(self.stretches[::2], self.stretches[1::2], strict=True)
        self.stretches[:] = [_joined(*pair) for pair in pairs]
        self.width *= 2
        self.filled = self.width

    def points(self) -> list[Point]:
        found: list[Point] = []
        for x1, y1, x2, y2 in self.stretches:
            found.append((x1, y1))
            if y1 != y2:
                found.append((x2, y2))
        return found


def _extremes(
    steps: Sequence[float], values: Sequence[float], start: int, end: int
) -> tuple[float, float, float, float]:
    if end == start + 1:
        return steps[start], values[start], steps[start], values[start]
    part = values[start:end]
    low, high = start + part.index(min(part)), start + part.index(max(part))
    first, second = min(low, high), max(low, high)
    return steps[first], values[first], steps[second], values[second]


def _joined(
    one: tuple[float, float, float, float], two: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    ordered = ((one[0], one[1]), (one[2], one[3]), (two[0], two[1]), (two[2], two[3]))
    values = [y for _, y in ordered]
    low, high = values.index(min(values)), values.index(max(values))
    return (*ordered[min(low, high)], *ordered[max(low, high)])


@dataclass
class Band:
    """Summary of many ranks together, by stretches of steps: count of values, mean, least and greatest."""

    width: float = 1.0
    """Steps in a stretch, a power of two. The first stretch begins at step 0."""
    rows: dict[float, tuple[float, int, float, float, float]] = field(default_factory=dict)
    """By the number of the stretch: its first step that occurred, count, mean, least, greatest."""

    def extend(self, steps: Sequence[float], values: Sequence[float]) -> None:
        """Add points. All values are finite."""
        at, end = 0, len(values)
        while at < end:
            place, first = steps[at] // self.width, at
            low_step = steps[at]
            while at < end and steps[at] // self.width == place:
                low_step = min(low_step, steps[at])
                at += 1
            part = values[first:at]
            # Divide before adding: the sum of huge values may overflow a float.
            mean = sum(value / len(part) for value in part)
            self._put(place, (low_step, len(part), mean, min(part), max(part)))
            if len(self.rows) > _BAND_ROWS:
                self._widen(2 * self.width)

    def absorb(self, other: Band) -> None:
        """Add the points of another band."""
        self._widen(max(self.width, other.width))
        for row in other.rows.values():
            self._put(row[0] // self.width, row)
        while len(self.rows) > _BAND_ROWS:
            self._widen(2 * self.width)

    def _widen(self, width: float) -> None:
        rows, self.width, self.rows = self.rows, width, {}
        for row in rows.values():
            self._put(row[0] // width, row)

    def _put(self, place: float, row: tuple[float, int, float, float, float]) -> None:
        was = self.rows.get(place)
        if was is None:
            self.rows[place] = row
            return
        count = was[1] + row[1]
        mean = was[2] * (was[1] / count) + row[2] * (row[1] / count)
        self.rows[place] = (min(was[0], row[0]), count, mean, min(was[3], row[3]), max(was[4], row[4]))

    def points(self) -> list[tuple[float, float, float, float]]:
        """Return step, least, mean and greatest, in the order of the steps."""
        found = (self.rows[place] for place in sorted(self.rows))
        return [(step, low, mean, high) for step, _, mean, low, high in found]


@dataclass
class Metric:
    """One metric of one attempt."""

    first: float = math.inf
    """Time of the first point."""
    last: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    """By rank: the number of points, and the last point's step and value.

    The value may be NaN or infinite.
    """
    lines: dict[int, Line] = field(default_factory=dict)
    """By rank. Empty for more than `LINES` ranks."""
    band: Band | None = None
    """Band of all ranks, if the run has more than `LINES` ranks."""
    recent: RecentPoints = field(default_factory=RecentPoints)

    def extremes(self) -> list[float] | None:
        """Return the lowest and the highest finite value of all ranks. None if there is none."""
        if self.band is not None:
            pairs = [(low, high) for *_, low, high in self.band.rows.values()]
        else:
            rows = (row for line in self.lines.values() for row in line.stretches)
            pairs = [(min(y1, y2), max(y1, y2)) for _, y1, _, y2 in rows]
        return [min(low for low, _ in pairs), max(high for _, high in pairs)] if pairs else None


class Digest:
    """Metrics of one attempt of a run with `ranks` ranks."""

    def __init__(self, ranks: int, most_names: int) -> None:
        self.banded = ranks > LINES
        self.metrics: dict[str, Metric] = {}
        self.left_out = False
        """Whether there were more names than `most_names`."""
        self._most_names = most_names

    def add(
        self,
        rank: int,
        name: str,
        steps: Sequence[float | None],
        values: Sequence[float],
        times: Iterable[float],
    ) -> None:
        """Add points of one metric and rank, in their order.

        If a step is None, the point's number is its step.
        """
        metric = self.metrics.get(name)
        if metric is None:
            if len(self.metrics) >= self._most_names:
                self.left_out = True
                return
            metric = self.metrics[name] = Metric(band=Band() if self.banded else None)
        count = metric.last[rank][0] if rank in metric.last else 0
        if not count:
            metric.first = min(metric.first, next(iter(times)))
        numbered = [float(count + i) if step is None else step for i, step in enumerate(steps)]
        metric.last[rank] = (count + len(values), numbered[-1], values[-1])
        metric.recent.add(rank, numbered, values)
        if not all(map(math.isfinite, values)):
            kept = [(x, y) for x, y in zip(numbered, values, strict=True) if math.isfinite(y)]
            numbered, values = [x for x, _ in kept], [y for _, y in kept]
        if len(metric.last) > LINES:
            metric.lines.clear()
        else:
            metric.lines.setdefault(rank, Line()).extend(numbered, values)
        if metric.band is not None:
            metric.band.extend(numbered, values)

    def trim(self, *, all_read: bool) -> None:
        """Forget recent points that no rank needs. `all_read`: each rank's events were read."""
        for metric in self.metrics.values():
            metric.recent.trim(len(self.metrics), all_read=all_read)

    def to_json(self) -> list[Any]:
        """Return data for JSON. NaN and infinity are written as Python's json module writes them."""
        return [
            [
                name,
                metric.first,
                [[rank, *last] for rank, last in metric.last.items()],
                [
                    [rank, line.width, line.filled, [number for four in line.stretches for number in four]]
                    for rank, line in metric.lines.items()
                ],
                None
                if metric.band is None
                else [metric.band.width, [[place, *row] for place, row in metric.band.rows.items()]],
                metric.recent.to_json(),
            ]
            for name, metric in self.metrics.items()
        ]

    def take(self, data: Any) -> None:
        """Continue from the data of `to_json`.

        Raises ValueError, TypeError or IndexError for any other data.
        """
        for name, first, last, lines, band, recent in data:
            metric = self.metrics[str(name)] = Metric(float(first), recent=RecentPoints.of_json(recent))
            metric.last = {int(rank): (int(n), float(x), float(y)) for rank, n, x, y in last}
            for rank, width, filled, numbers in lines:
                each = [iter(numbers)] * 4
                metric.lines[int(rank)] = Line(int(width), int(filled), list(zip(*each, strict=True)))
            if self.banded:
                rows = {place: (x, int(n), mean, low, high) for place, x, n, mean, low, high in band[1]}
                metric.band = Band(float(band[0]), rows)
