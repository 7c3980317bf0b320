"""Mean, lowest and highest value of all ranks, by stretches of steps, kept up to date as ranks log.

A new point changes one stretch. So neither the computation nor the answer grows with the length of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..answers.metrics import Band
from .rounding import numbers, seconds, whole
from .series import Floats, Series

__all__ = ["BandSums"]

_STRETCHES = 2048
_NUMBER, _VALUE, _STEP, _TIMED, _TIME = range(5)


@dataclass(frozen=True)
class _Sums:
    """Sums of points by place. A place is a stretch of steps."""

    added: Floats
    """Rows: number of points, sum of values, sum of steps, number of known times, sum of times."""
    low: Floats
    high: Floats

    @classmethod
    def empty(cls, size: int) -> _Sums:
        return cls(np.zeros((5, size)), np.full(size, np.inf), np.full(size, -np.inf))

    @classmethod
    def of(cls, place: npt.NDArray[np.int64], steps: Floats, values: Floats, times: Floats) -> _Sums:
        """Return the sums of these points. `place`: the place of each point."""
        size = int(place.max(initial=-1)) + 1
        made = cls.empty(size)
        timed = np.isfinite(times)
        made.added[_NUMBER] = np.bincount(place, minlength=size)
        made.added[_VALUE] = np.bincount(place, values, size)
        made.added[_STEP] = np.bincount(place, steps, size)
        made.added[_TIMED] = np.bincount(place[timed], minlength=size)
        made.added[_TIME] = np.bincount(place[timed], times[timed], size)
        np.minimum.at(made.low, place, values)
        np.maximum.at(made.high, place, values)
        return made

    @property
    def size(self) -> int:
        return len(self.low)

    def merge(self, other: _Sums, first: int) -> None:
        """Add other sums, whose first place is `first` here."""
        end = first + other.size
        self.added[:, first:end] += other.added
        self.low[first:end] = np.minimum(self.low[first:end], other.low)
        self.high[first:end] = np.maximum(self.high[first:end], other.high)

    def part(self, first: int, end: int) -> _Sums:
        return _Sums(self.added[:, first:end], self.low[first:end], self.high[first:end])


class BandSums:
    """Sums over all ranks of one metric. Stretches are a power of two long, and begin at multiples of it.

    So a longer curve has other stretches only when their length doubles.
    """

    def __init__(self) -> None:
        self._taken: dict[int, int] = {}
        self._reached: dict[int, float] = {}
        self._width, self._base = 1.0, 0.0
        self._sums = _Sums.empty(0)

    def take(self, by_rank: Mapping[int, Series]) -> None:
        """Add the points that were logged since the last call."""
        parts = []
        for rank, series in by_rank.items():
            before, end = self._taken.get(rank, 0), len(series.steps)
            if end > before:
                parts.append(series.since(before))
                self._taken[rank] = end
                self._reached[rank] = max(self._reached.get(rank, -math.inf), float(parts[-1][0].max()))
        if not parts:
            return
        steps, values, times = (np.concatenate(part) for part in zip(*parts, strict=True))
        finite = np.isfinite(values)
        steps, values, times = steps[finite], values[finite], times[finite]
        if not len(steps):
            return
        self._make_room(float(steps.min()), float(steps.max()))
        place = (np.floor(steps / self._width) - self._base).astype(np.int64)
        first = int(place.min())
        self._sums.merge(_Sums.of(place - first, steps, values, times), first)

    def _make_room(self, low: float, high: float) -> None:
        first, last = self._wanted(low, high)
        while last - first >= _STRETCHES:
            self._sums, self._base = _halved(self._sums, self._base)
            self._width *= 2
            first, last = self._wanted(low, high)
        size = self._sums.size
        if size and first == self._base and last < self._base + size:
            return
        before, base = self._sums, self._base
        room = min(_STRETCHES, max(64, 2 * size))
        self._base, self._sums = first, _Sums.empty(max(room, int(last - first) + 1))
        used = np.flatnonzero(before.added[_NUMBER])
        if len(used):
            start, end = int(used[0]), int(used[-1]) + 1
            self._sums.merge(before.part(start, end), int(base + start - first))

    def _wanted(self, low: float, high: float) -> tuple[float, float]:
        """Return the first and the last stretch that are in use, with those of these two steps."""
        first, last = math.floor(low / self._width), math.floor(high / self._width)
        used = np.flatnonzero(self._sums.added[_NUMBER])
        if len(used):
            first = min(first, int(self._base + used[0]))
            last = max(last, int(self._base + used[-1]))
        return float(first), float(last)

    def band(self, by_rank: Mapping[int, Series], points: int, until: float) -> Band:
        """Return the band with at most about `points` stretches. `by_rank`: the series that were taken.

        `until`: the last step that all ranks have reached. No stretch contains steps on both sides of it.
        """
        sums, base, width = self._sums, self._base, self._width
        used = np.flatnonzero(sums.added[_NUMBER])
        if not len(used):
            return {"steps": [], "mean": [], "min": [], "max": [], "times": [], "whole": 0, "ranks": []}
        sums, base = sums.part(int(used[0]), int(used[-1]) + 1), base + int(used[0])
        while sums.size > points:
            sums, base = _halved(sums, base)
            width *= 2
        edges = (base + np.arange(sums.size)) * width
        split = math.floor(until / width) - base if math.isfinite(until) else sums.size
        at = int(min(max(split, -1), sums.size))
        parts = [sums.part(0, max(at, 0)), sums.part(at + 1, sums.size)]
        after = edges[at + 1 :]
        if 0 <= at < sums.size:
            # The last common step is a stretch of its own.
            inner = _inner(by_rank, edges[at], edges[at] + width, until)
            parts.insert(1, inner)
            after = np.concatenate([[np.nextafter(until, np.inf)], after])
        reached = np.array(sorted(self._reached.values()))
        present = len(reached) - np.searchsorted(reached, after)
        everywhere = np.concatenate([np.full(sum(p.size for p in parts) - len(after), len(reached)), present])
        added = np.concatenate([part.added for part in parts], axis=1)
        low, high = (np.concatenate([getattr(part, name) for part in parts]) for name in ("low", "high"))
        filled = added[_NUMBER] > 0
        added, low, high, everywhere = added[:, filled], low[filled], high[filled], everywhere[filled]
        partial = everywhere < len(reached)
        complete = int(partial.argmax()) if partial.any() else len(partial)
        with np.errstate(all="ignore"):
            times = added[_TIME] / added[_TIMED]
        return {
            "steps": whole(np.round(added[_STEP] / added[_NUMBER])),
            "mean": numbers(added[_VALUE] / added[_NUMBER]),
            "min": numbers(low),
            "max": numbers(high),
            "times": seconds(times),
            "whole": complete,
            "ranks": everywhere[complete:].tolist(),
        }


def _inner(by_rank: Mapping[int, Series], low: float, high: float, until: float) -> _Sums:
    """Return the sums of one stretch in three places: before the step `until`, at it, and after it."""
    found = [series.between(low, high) for series in by_rank.values()]
    steps, values, times = (np.concatenate(part) for part in zip(*found, strict=True))
    finite = np.isfinite(values)
    steps, values, times = steps[finite], values[finite], times[finite]
    place = (steps >= until).astype(np.int64) + (steps > until)
    made = _Sums.empty(3)
    made.merge(_Sums.of(place, steps, values, times), 0)
    return made


def _halved(sums: _Sums, base: float) -> tuple[_Sums, float]:
    """Return sums of stretches that are twice as long, and the number of the first one."""
    left = int(base % 2)
    size = left + sums.size + (left + sums.size) % 2
    even = _Sums.empty(size)
    even.merge(sums, left)
    halved = _Sums(
        even.added[:, ::2] + even.added[:, 1::2],
        np.minimum(even.low[::2], even.low[1::2]),
        np.maximum(even.high[::2], even.high[1::2]),
    )
    return halved, math.floor(base / 2)
