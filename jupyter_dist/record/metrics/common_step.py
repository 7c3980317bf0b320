"""Values of a metric at the last step that all ranks have reached.

Ranks log at different times. A mean of each rank's newest value would mix steps.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...job import State, Status

__all__ = ["LastValues", "RecentPoints", "departed"]

_MOST_POINTS = 65_536
"""Limit for all recent points of an attempt."""
_MOST_EACH, _LEAST_EACH = 4096, 16


@dataclass(frozen=True)
class LastValues:
    """Value of each rank at the last step that all ranks have reached."""

    step: float
    values: Mapping[int, float]
    """By rank. A rank that logs at other steps has its value from the step before."""
    of: int
    """How many ranks log the metric. `values` lacks those that are far behind the others."""

    def summary(self) -> tuple[float, float, float] | None:
        """Return mean, least and greatest of the finite values. None if there is no finite value."""
        finite = [value for value in self.values.values() if math.isfinite(value)]
        if not finite:
            return None
        low, high = min(finite), max(finite)
        # Divide before adding: the sum of huge values may overflow a float.
        mean = low if low == high else sum(value / len(finite) for value in finite)
        return mean, low, high


class RecentPoints:
    """Points of one metric: each rank's points since the last step that all ranks have reached."""

    def __init__(self) -> None:
        self._steps: dict[int, list[float]] = {}
        """By rank: increasing steps."""
        self._values: dict[int, list[float]] = {}

    def add(self, rank: int, steps: Sequence[float], values: Sequence[float]) -> None:
        """Add points of one rank in their order. If a step was already passed, the rank counts anew."""
        if rank not in self._steps:
            self._steps[rank], self._values[rank] = [], []
        own, numbers = self._steps[rank], self._values[rank]
        after = not own or not steps or steps[0] > own[-1]
        if after and all(map(operator.lt, steps, islice(steps, 1, None))):
            own += steps
            numbers += values
            if len(own) > 2 * _MOST_EACH:  # a long file, of which nothing was forgotten yet
                del own[:-_MOST_EACH], numbers[:-_MOST_EACH]
            return
        for step, value in zip(steps, values, strict=True):
            if own and step <= own[-1]:
                before = bisect_right(own, step)
                before -= before > 0 and own[before - 1] == step
                del own[before:], numbers[before:]
            own.append(step)
            numbers.append(value)

    def trim(self, metrics: int, *, all_read: bool) -> None:
        """Forget points that no later call of `last` needs.

        `metrics`: the number of metrics of the attempt. `all_read`: each rank's events were read.
        """
        if not self._steps:
            return
        most = _MOST_POINTS // (len(self._steps) * max(1, metrics))
        most = min(_MOST_EACH, max(_LEAST_EACH, most))
        common = min(own[-1] for own in self._steps.values()) if all_read else -math.inf
        for rank, own in self._steps.items():
            start = max(bisect_right(own, common) - 1, len(own) - most)
            if start > 0:
                del own[:start], self._values[rank][:start]

    def last(self, without: Collection[int] = ()) -> LastValues | None:
        """Return the values at the last common step. `without`: ranks that do not hold the others back."""
        found = {rank: own for rank, own in self._steps.items() if own}
        counted = [rank for rank in found if rank not in without] or list(found)
        if not counted:
            return None
        step = _common([(found[rank][0], found[rank][-1]) for rank in counted])
        values = {
            rank: self._values[rank][bisect_right(own, step) - 1]
            for rank, own in found.items()
            if own[0] <= step <= own[-1]
        }
        return LastValues(step, values, len({*counted, *values}))

    def to_json(self) -> list[Any]:
        return [[rank, own, self._values[rank]] for rank, own in self._steps.items()]

    @classmethod
    def of_json(cls, data: Any) -> RecentPoints:
        """Return the points of `to_json`. Raises ValueError or TypeError for any other data."""
        made = cls()
        for rank, steps, values in data:
            made.add(int(rank), [float(step) for step in steps], [float(value) for value in values])
        return made


def _common(ranges: Sequence[tuple[float, float]]) -> float:
    """Return the last step within most of the ranges. Each range has a rank's first and last step."""
    reached = min(last for _, last in ranges)
    if max(first for first, _ in ranges) <= reached:
        return reached
    # Some rank is so far behind that the other ranks' values there are forgotten.
    ends = {last for _, last in ranges}
    return max(ends, key=lambda end: (sum(first <= end <= last for first, last in ranges), end))


def departed(status: Status) -> frozenset[int]:
    """Return the ranks that ended without success while the others continued."""
    if status.state.ended and status.state is not State.SUCCEEDED:
        return frozenset()
    ended = {rank.rank for rank in status.ranks if rank.state.ended and rank.state is not State.SUCCEEDED}
    return frozenset(ended) if len(ended) < len(status.ranks) else frozenset()
