"""Wait for the stacks that the ranks write before a time limit ends them."""

from __future__ import annotations

from collections.abc import Sequence

from ..folder import RunFolder
from ..job import RankState, State
from ..record.failures.stacks import sizes, written_after

__all__ = ["COLLECTIVES_S", "StackArrival"]

COLLECTIVES_S = 0.15
"""Seconds in which a rank writes the rest: all its threads and its collectives. It looks every 0.1 s."""


class StackArrival:
    """The stacks of these ranks, which are to be written from now on."""

    def __init__(self, folder: RunFolder, attempt: int, ranks: Sequence[RankState]) -> None:
        """`ranks`: all ranks. Only those that run are asked."""
        self._folder, self._attempt = folder, attempt
        self._ranks = [rank.rank for rank in ranks if rank.state is State.RUNNING]
        self._before = self._last = self._sizes()

    def complete(self) -> bool:
        """Return whether each rank has written, and none has written more since the previous call."""
        now, last = self._sizes(), self._last
        self._last = now
        if now != last:
            return False
        return len(written_after(self._folder, self._attempt, self._before)) == len(self._ranks)

    def _sizes(self) -> dict[int, int]:
        return sizes(self._folder, self._attempt, self._ranks)
