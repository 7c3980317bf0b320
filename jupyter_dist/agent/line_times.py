"""Write down when each rank's log grew, beside the log: `times.idx`, records of (offset, time) as `<Qd`.

By this host's clock, and whether or not a driver is there: what a driver reads after a cut says when the
lines were printed, not when they came. Its first record is at offset 0, which tells that the index comes from
the host: a supervisor that finds it writes none of its own (supervise/indexing.py).
"""

from __future__ import annotations

import contextlib
import os
import struct
import time

__all__ = ["RECORD", "LineTimes"]

RECORD = struct.Struct("<Qd")
_LIST_EVERY = 8


class LineTimes:
    """The logs of all ranks below RUN/attempts."""

    def __init__(self, run: str) -> None:
        self._attempts = os.path.join(run, "attempts")
        self._sizes: dict[str, int] = {}
        """How far the log in each rank's folder is written down."""
        self._ticks = 0

    def tick(self) -> None:
        """Write down what has grown; to be called often. A full disk costs times, nothing else."""
        if self._ticks % _LIST_EVERY == 0:
            self._look()
        self._ticks += 1
        for folder, known in self._sizes.items():
            with contextlib.suppress(OSError):
                size = os.stat(os.path.join(folder, "output.log")).st_size
                if size > known:
                    self._append(folder, known, size)
                    self._sizes[folder] = size

    def _look(self) -> None:
        for attempt in _names(self._attempts):
            ranks = os.path.join(self._attempts, attempt, "ranks")
            for rank in _names(ranks):
                folder = os.path.join(ranks, rank)
                if folder not in self._sizes:
                    self._sizes[folder] = _indexed(folder)

    @staticmethod
    def _append(folder: str, known: int, size: int) -> None:
        now = time.time()
        path = os.path.join(folder, "times.idx")
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            first = RECORD.pack(0, now) if os.fstat(fd).st_size == 0 else b""
            os.write(fd, first + RECORD.pack(size, now))
        finally:
            os.close(fd)


def _names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []


def _indexed(folder: str) -> int:
    """How far an agent before this one has come."""
    try:
        with open(os.path.join(folder, "times.idx"), "rb") as file:
            file.seek(-RECORD.size, os.SEEK_END)
            return int(RECORD.unpack(file.read())[0])
    except (OSError, struct.error):
        return 0
