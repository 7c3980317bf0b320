"""Keep a sparse time index beside each rank's log, so that views can interleave ranks."""

from __future__ import annotations

import os
import struct

from .folder import RunFolder, open_private

__all__ = ["Indexer"]

_RECORD = struct.Struct("<Qd")


class Indexer:
    """Appends (offset, time) to `times.idx` whenever a log has grown: at most one record per tick."""

    def __init__(self, folder: RunFolder, attempt: int, world_size: int) -> None:
        self._folders = [folder.rank(attempt, rank) for rank in range(world_size)]
        self._sizes = [0] * world_size
        self._event_sizes = [0] * world_size

    def tick(self, now: float) -> bool:
        """Record what has grown since the last tick; returns whether anything has."""
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
        try:
            fd = open_private(self._folders[rank].times, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(fd, _RECORD.pack(size, now))
            finally:
                os.close(fd)
        except OSError:
            pass  # a full disk costs the times of these lines, not the run


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
