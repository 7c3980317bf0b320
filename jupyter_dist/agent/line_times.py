"""Time index beside each rank's log: when the log grew (worker/output/time_index.py).

The times are by this host's clock. The agent also writes them without a driver. A driver that connects later
thus reads when the lines were printed, not when they arrived.
"""

from __future__ import annotations

import contextlib
import os
import time

from ..worker import layout, listing
from ..worker.output import time_index

__all__ = ["LineTimes"]

_LIST_EVERY = 8


class LineTimes:
    """Time indexes of the logs of all ranks in RUN/attempts."""

    def __init__(self, run: str) -> None:
        self._attempts = os.path.join(run, layout.ATTEMPTS)
        self._sizes: dict[str, int] = {}
        """Folder of a rank → size of its log that the index covers."""
        self._ticks = 0

    def tick(self) -> None:
        """Record the logs that have grown. Call this often. On a full disk only times are lost."""
        if self._ticks % _LIST_EVERY == 0:
            self._look()
        self._ticks += 1
        for folder, known in self._sizes.items():
            with contextlib.suppress(OSError):
                size = os.stat(os.path.join(folder, layout.OUTPUT)).st_size
                if size > known:
                    self._append(folder, size)
                    self._sizes[folder] = size

    def _look(self) -> None:
        for attempt in listing.numbers(self._attempts):
            ranks = os.path.join(self._attempts, str(attempt), layout.RANKS)
            for rank in listing.numbers(ranks):
                folder = os.path.join(ranks, str(rank))
                if folder not in self._sizes:
                    self._sizes[folder] = time_index.covered(os.path.join(folder, layout.TIMES))

    @staticmethod
    def _append(folder: str, size: int) -> None:
        now = time.time()
        path = os.path.join(folder, layout.TIMES)
        begun = os.path.exists(path) and os.path.getsize(path) > 0
        time_index.append(path, *([] if begun else [(0, now)]), (size, now))
