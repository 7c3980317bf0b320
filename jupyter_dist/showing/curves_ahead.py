"""Read a run's metrics while it goes on, so that the summary at its end has little left to read."""

from __future__ import annotations

import math

from ..errors import DistError
from ..folder import RunFolder
from ..text.safe import one_line
from ..text.svg import Series

__all__ = ["CurvesAhead", "curves"]

_EVERY_S = 0.25


class CurvesAhead:
    """For one run that is followed."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._due = False
        self._next = 0.0

    def take(self, metrics: int, attempt: int, now: float) -> None:
        """`metrics`: how many bytes of them have come since the last call. Reads them, from time to time."""
        self._due = self._due or metrics > 0
        if not self._due or now < self._next:
            return
        self._due, self._next = False, now + _EVERY_S
        # Here and not above: a run without metrics does not wait for numpy.
        from ..queries import metric_curves

        try:
            metric_curves.refresh(self._folder, attempt)
        except DistError:
            return  # it is being removed


def curves(folder: RunFolder) -> dict[str, list[Series]]:
    """Every metric's values by rank, of all attempts, in the order in which the metrics first came."""
    from ..queries import metric_curves

    found: dict[str, dict[int, tuple[list[float], list[float]]]] = {}
    first: dict[str, tuple[int, float]] = {}
    for attempt in folder.attempts():
        for name, ranks in metric_curves.refresh(folder, attempt).items():
            shown = one_line(name, 60)
            for rank, (steps, values, times) in ranks.items():
                own_steps, own_values = found.setdefault(shown, {}).setdefault(rank, ([], []))
                own_steps += steps
                own_values += values
                when = times[0] if times and math.isfinite(times[0]) else math.inf
                first[shown] = min(first.get(shown, (attempt, math.inf)), (attempt, when))
    return {
        name: [Series(rank, *found[name][rank]) for rank in sorted(found[name])]
        for name in sorted(found, key=lambda name: first[name])
    }
