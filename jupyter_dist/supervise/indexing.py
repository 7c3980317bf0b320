"""Keep a sparse time index beside each rank's log, so that views can interleave ranks."""

from __future__ import annotations

import os
import struct

from ..folder import RankFolder, RunFolder, open_private

__all__ = ["Indexer"]

_RECORD = struct.Struct("<Qd")


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

    def tick(self, now: float, ranks: int) -> bool:
        """Record what has grown since the last tick; returns whether anything has.

        `ranks`: how many there are by now.
        """
        for rank in range(len(self._folders), ranks):
            folder = self._folder.rank(self._attempt, rank)
            self._folders.append(folder)
            self._sizes.append(_indexed(folder.times))
            self._event_sizes.append(0)
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
            fd = open_private(self._folders[rank].times, os.O_RDWR | os.O_APPEND)
            try:
                first = os.pread(fd, _RECORD.size, 0)
                if len(first) == _RECORD.size and _RECORD.unpack(first)[0] == 0:
                    return
                os.write(fd, _RECORD.pack(size, now))
            finally:
                os.close(fd)
        except OSError:
            pass  # a full disk costs the times of these lines, not the run


def _indexed(path: os.PathLike[str]) -> int:
    """How far an earlier supervisor has come."""
    try:
        with open(path, "rb") as file:
            file.seek(-_RECORD.size, os.SEEK_END)
            return int(_RECORD.unpack(file.read(_RECORD.size))[0])
    except (OSError, struct.error):
        return 0


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
