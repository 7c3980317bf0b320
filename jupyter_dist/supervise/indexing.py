"""Keep a sparse time index beside each rank's log, so that views can interleave ranks."""

from __future__ import annotations

import contextlib
import os

from ..folder import RankFolder, RunFolder
from ..worker import time_index

__all__ = ["Indexer"]


class Indexer:
    """Appends (offset, time) to `times.idx` whenever a log has grown: at most one record per tick.

    The times of a log that comes from another host come from there as well: an index whose first record is at
    offset 0 (agent/line_times.py) is not touched.
    """

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt
        self._folders: list[RankFolder] = []
        self._sizes: list[int] = []
        self._event_sizes: list[int] = []
        self._of_host: list[bool | None] = []
        """Whether each rank's index comes from its host; None before its log has grown."""

    def tick(self, now: float, ranks: int) -> bool:
        """Record what has grown since the last tick; returns whether anything has.

        `ranks`: how many there are by now.
        """
        for rank in range(len(self._folders), ranks):
            folder = self._folder.rank(self._attempt, rank)
            self._folders.append(folder)
            self._sizes.append(time_index.covered(folder.times))
            self._event_sizes.append(0)
            self._of_host.append(None)
        grown = False
        for rank, folder in enumerate(self._folders):
            size = _size(folder.output)
            if size > self._sizes[rank]:
                grown = True
                self._sizes[rank] = size
                self._append(rank, size, now)
            events = _size(folder.events)
            if events > self._event_sizes[rank]:
                grown = True
                self._event_sizes[rank] = events
        return grown

    def _append(self, rank: int, size: int, now: float) -> None:
        if self._of_host[rank] is None:
            self._of_host[rank] = time_index.is_of_host(self._folders[rank].times)
        if not self._of_host[rank]:
            # A full disk costs the times of these lines, not the run.
            with contextlib.suppress(OSError):
                time_index.append(self._folders[rank].times, (size, now))


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
