"""Engine of --scaling: it proposes each number of ranks, from the smallest to the largest."""

from __future__ import annotations

from collections.abc import Sequence

from ...job import Job
from ...record.trials import Trial
from ...search.spec import Search
from . import Proposal

__all__ = ["SizesEngine"]


class SizesEngine:
    """Implements `Engine`. The number of a trial decides its size, so there is no state."""

    def __init__(self, search: Search, job: Job) -> None:
        self._search = search

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        pass

    def ask(self, number: int) -> Proposal | None:
        return Proposal(self._search.grid_point(number))

    def pruned_at(self, number: int, reported: Sequence[tuple[int, float]]) -> int | None:
        return None

    def tell(self, trial: Trial) -> None:
        pass

    def exhausted(self) -> str | None:
        return None

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass
