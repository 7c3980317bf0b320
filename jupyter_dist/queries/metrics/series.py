"""One metric of one rank, as it was logged."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from ..answers.metrics import NotFinite, SpecialValue
from .rounding import whole

__all__ = ["Floats", "Points", "Series"]

Floats = npt.NDArray[np.float64]
Points = tuple[Floats, Floats, Floats]
"""Steps, values and times."""


class Series:
    """Points in the order in which they were logged. New points are added at the end."""

    __slots__ = ("_bad", "_ordered", "steps", "times", "values")

    def __init__(self) -> None:
        self.steps, self.values, self.times = array("d"), array("d"), array("d")
        self._bad = array("q")
        """Indices of the values that are not finite."""
        self._ordered = True
        """Whether no step is less than the step before it."""

    @classmethod
    def joined(cls, pieces: list[Points]) -> Series:
        """Return the points of all pieces, one piece after the other."""
        made = cls()
        for steps, values, times in pieces:
            made.extend(steps, values, times)
        return made

    def append(self, step: float, value: float, time: float) -> None:
        self.steps.append(step)  # raises OverflowError for a huge integer, before anything is added
        if len(self.steps) > 1 and step < self.steps[-2]:
            self._ordered = False
        if not math.isfinite(value):
            self._bad.append(len(self.values))
        self.values.append(value)
        self.times.append(time)

    def extend(self, steps: Floats, values: Floats, times: Floats) -> None:
        if not len(steps):
            return
        if (self.steps and steps[0] < self.steps[-1]) or (np.diff(steps) < 0).any():
            self._ordered = False
        for index in np.flatnonzero(~np.isfinite(values)).tolist():
            self._bad.append(len(self.values) + index)
        for own, new in ((self.steps, steps), (self.values, values), (self.times, times)):
            own.frombytes(np.ascontiguousarray(new, dtype=np.float64).tobytes())

    def since(self, index: int, end: int | None = None) -> Points:
        """Return copies of the points from this index on, up to `end` without it.

        An array could not grow while numpy had a view of it.
        """
        part = slice(index, end)
        return np.array(self.steps[part]), np.array(self.values[part]), np.array(self.times[part])

    def between(self, low: float, high: float) -> Points:
        """Return the points with `low <= step < high`."""
        if self._ordered:
            return self.since(bisect_left(self.steps, low), bisect_left(self.steps, high))
        steps, values, times = self.since(0)
        kept = (steps >= low) & (steps < high)
        return steps[kept], values[kept], times[kept]

    def bad(self, limit: int) -> list[int]:
        """Return the indices of the first values that are not finite."""
        return self._bad[:limit].tolist()

    def special(self, index: int) -> SpecialValue:
        value = self.values[index]
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return {"step": whole(np.array(self.steps[index : index + 1]))[0], "value": name}

    def not_finite(self) -> NotFinite | None:
        """Return how many values are not finite, and where. None if all values are finite."""
        bad = self._bad
        if not bad:
            return None
        since = None
        if bad[-1] == len(self.values) - 1:
            # In the run of indices at the end, an index and its place grow alike.
            place = bisect_left(range(len(bad)), True, key=lambda at: bad[-1] - bad[at] == len(bad) - 1 - at)
            since = self.special(bad[place])["step"]
        return {"count": len(bad), "last": self.special(bad[-1]), "since": since}
