"""One curve of a metric over all attempts of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...record.metrics.common_step import LastValues
from ..answers.metrics import AttemptStart
from .series import Points, Series

__all__ = ["Part", "joined"]


@dataclass(frozen=True)
class Part:
    """Points of a metric in one attempt."""

    attempt: int
    by_rank: Mapping[int, Series]
    last: LastValues | None


def joined(parts: Sequence[Part]) -> tuple[Mapping[int, Series], LastValues | None, list[AttemptStart]]:
    """Return the points of all attempts, the last values, and where attempts begin. `parts`: oldest first.

    An attempt replaces the points of earlier attempts from its first step on, such as the step of a
    checkpoint. The last values are those of the newest attempt.
    """
    if len(parts) == 1:
        return dict(sorted(parts[0].by_rank.items())), parts[0].last, []
    found: dict[int, list[Points]] = {}
    starts: list[AttemptStart] = []
    before = np.inf
    begun: tuple[int, float] | None = None
    for part in reversed(parts):
        kept = {rank: series.between(-np.inf, before) for rank, series in part.by_rank.items()}
        kept = {rank: points for rank, points in kept.items() if len(points[0])}
        if not kept:
            continue
        if begun is not None:
            starts.insert(0, {"attempt": begun[0], "step": begun[1]})
        for rank, points in kept.items():
            found.setdefault(rank, []).insert(0, points)
        before = min(float(points[0].min()) for points in kept.values())
        begun = part.attempt, before
    by_rank = {rank: Series.joined(pieces) for rank, pieces in sorted(found.items())}
    return by_rank, parts[-1].last, starts
