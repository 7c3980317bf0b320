"""The end of ranks that only serve others, such as parameter servers, once all others have succeeded."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from ...folder import RunFolder
from ...job import Poll, RankState, State
from ...worker.tensorflow.server_rank import MARK

__all__ = ["Serving"]

_GRACE_S = 2.0
"""Seconds from SIGTERM to SIGKILL. A serving rank has nothing to save."""


class Serving:
    """The serving ranks of one attempt. Each has a mark file (worker/tensorflow/server_rank.py)."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt
        self._asked_at: float | None = None

    def settle(self, poll: Poll, stop: Callable[..., None]) -> Poll:
        """Return the poll with the final states of serving ranks. Call it with every poll.

        Calls `stop(kill=False)`, later `stop(kill=True)`, when only serving ranks are left. They then count
        as succeeded, however they end.
        """
        if State.SUCCEEDED not in {rank.state for rank in poll.ranks}:
            return poll
        serving = {rank.rank for rank in poll.ranks if rank.state is not State.SUCCEEDED}
        if not serving or not all(self._serves(rank) for rank in serving):
            return poll
        if State.RUNNING in {rank.state for rank in poll.ranks}:
            self._end(stop)
        ranks = tuple(self._judged(rank) if rank.rank in serving else rank for rank in poll.ranks)
        done = all(rank.state is State.SUCCEEDED for rank in ranks)
        return dataclasses.replace(poll, ranks=ranks, state=State.SUCCEEDED if done else poll.state)

    def _serves(self, rank: int) -> bool:
        return (self._folder.rank(self._attempt, rank).path / MARK).exists()

    def _end(self, stop: Callable[..., None]) -> None:
        now = time.time()
        if self._asked_at is None:
            self._asked_at = now
            stop(kill=False)
        elif now >= self._asked_at + _GRACE_S:
            stop(kill=True)

    def _judged(self, rank: RankState) -> RankState:
        if rank.state is State.RUNNING or (rank.state is State.FAILED and self._asked_at is None):
            return rank
        # We sent the signal that ended the rank, so it is no failure.
        return dataclasses.replace(rank, state=State.SUCCEEDED, exit_code=0, signal=None)
