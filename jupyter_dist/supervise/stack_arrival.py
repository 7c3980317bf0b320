"""Wait for the stacks that the ranks write before a time limit ends them."""

from __future__ import annotations

from collections.abc import Sequence

from ..folder import RunFolder
from ..record.failures.stacks import sizes

__all__ = ["StackArrival"]


class StackArrival:
    """The stacks of these ranks, which are to be written from now on."""

    def __init__(self, folder: RunFolder, attempt: int, ranks: Sequence[int]) -> None:
        self._folder, self._attempt, self._ranks = folder, attempt, ranks
        self._before = self._last = self._sizes()

    def complete(self) -> bool:
        """Return whether each rank has written, and none has written more since the previous call."""
        now, last = self._sizes(), self._last
        self._last = now
        return now == last and all(now[rank] > self._before[rank] for rank in self._ranks)

    def _sizes(self) -> dict[int, int]:
        return sizes(self._folder, self._attempt, self._ranks)
