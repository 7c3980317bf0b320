"""Ranks that have reported an error but have not ended: threads or exit handlers can delay their end."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence

from ..folder import RunFolder
from ..job import RankState
from .turns import Turns

__all__ = ["ReportedErrors", "clock_of_files"]


def clock_of_files(folder: RunFolder) -> float:
    """Return the time by the clock of the run's files. No file that is written later has an earlier time.

    The clock of this process is no such clock: Linux gives a file the time of the last tick, up to 10 ms
    ago, and a file server gives its own time.
    """
    try:
        os.utime(folder.supervisor_log)
        return os.stat(folder.supervisor_log).st_mtime
    except OSError:  # the run may have been removed
        return time.time()


class ReportedErrors:
    """The error files of one attempt."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt
        self._paths: dict[int, str] = {}
        self._turns = Turns()

    def has(self, rank: int, before: float = math.inf) -> bool:
        """Return whether a rank has reported an error before this time, by the clock of files."""
        path = self._paths.get(rank)
        if path is None:
            path = self._paths[rank] = str(self._folder.rank(self._attempt, rank).error)
        try:
            return os.stat(path).st_mtime < before
        except OSError:
            return False

    def of_all(self, ranks: Sequence[RankState]) -> bool:
        """Return whether every rank that still runs has reported an error, so that none waits for another."""
        return all(rank.state.ended or self.has(rank.rank) for rank in ranks)

    def first(self, ranks: Sequence[RankState]) -> RankState | None:
        """Return a rank that has reported an error and still runs. Ten calls look at each rank once."""
        looked_at = (ranks[place] for place in self._turns.take(len(ranks)))
        return next((rank for rank in looked_at if not rank.state.ended and self.has(rank.rank)), None)
