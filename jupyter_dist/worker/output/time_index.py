"""The time index beside a rank's log, `times.idx`: its format, its writers and its reader.

A rank writes its log without times, as fast as possible. A watcher on the same machine checks the logs many
times a second. For each log that has grown, the watcher appends a record of the log's length and the time. So
a reader finds out by when a byte was written, and can order the lines of several ranks. On this machine the
supervisor is the watcher (supervise/log_index.py). On other hosts it is the agent (agent/line_times.py). The
agent uses that host's clock, and also works while no driver is connected. A first record at offset 0 marks an
index from a host. The supervisor adds nothing to such an index.

A moment is the time of one look at the logs of all ranks. After all records of a moment are written,
`moment.idx` in the run's folder is set to that time. A reader that orders the ranks' lines need not wait for
more records of that time. A reader that waits for news only has to watch that one file.

queries/logs/time_index.py reads many records at once with numpy. This module does not need numpy.
"""

from __future__ import annotations

import bisect
import os
import struct

from ..line_file import write_all

__all__ = ["Times", "append", "complete_until", "covered", "is_of_host", "note_complete", "records"]

RECORD = struct.Struct("<Qd")
"""The length of the log in bytes, and the time in seconds since the epoch."""
FIELDS = (("offset", "<u8"), ("time", "<f8"))
"""The same record for numpy."""


def append(path: str | os.PathLike[str], *added: tuple[int, float]) -> None:
    """Append records of (length of the log, time): all of them, or none. OSError passes through.

    An index has one writer. The writer removes a part of a record, which a full disk or a crash has left.
    """
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)  # independent of the umask
        size = os.fstat(fd).st_size
        whole = size - size % RECORD.size
        if size > whole:
            os.ftruncate(fd, whole)
        try:
            write_all(fd, b"".join(RECORD.pack(size, when) for size, when in added))
        except OSError:
            os.ftruncate(fd, whole)
            raise
    finally:
        os.close(fd)


def is_of_host(path: str | os.PathLike[str]) -> bool:
    """Return whether the index is written on another host, the host of the rank."""
    found = records(path, count=1)
    return bool(found) and found[0][0] == 0


def covered(path: str | os.PathLike[str]) -> int:
    """Return up to which byte of the log the index has times; 0 if there is no index."""
    try:
        with open(path, "rb") as file:
            file.seek(-RECORD.size, os.SEEK_END)
            return int(RECORD.unpack(file.read(RECORD.size))[0])
    except (OSError, struct.error):
        return 0


def records(
    path: str | os.PathLike[str], start: int = 0, count: int | None = None
) -> list[tuple[int, float]]:
    """Return at most `count` whole records from the index's byte `start` on; none if there is no file."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(-1 if count is None else count * RECORD.size)
    except OSError:
        return []
    return list(RECORD.iter_unpack(data[: len(data) - len(data) % RECORD.size]))


_MOMENT = struct.Struct("<d")


def note_complete(path: str | os.PathLike[str], when: float) -> None:
    """Record that all records up to `when` are written.

    `when` is 0 if the time is unknown although there are new lines. OSError passes through.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)  # independent of the umask
        os.pwrite(fd, _MOMENT.pack(when), 0)
    finally:
        os.close(fd)


def complete_until(path: str | os.PathLike[str]) -> float:
    """Return the time up to which the records of all ranks are written; 0 if it is unknown."""
    try:
        with open(path, "rb") as file:
            return float(_MOMENT.unpack(file.read(_MOMENT.size))[0])
    except (OSError, struct.error):
        return 0.0


class Times:
    """The arrival times of the lines of one rank's log, while its index grows."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._read = 0
        self._offsets: list[int] = []
        self._times: list[float] = []

    def refresh(self) -> None:
        """Read what was added since the last call."""
        for offset, when in records(self._path, self._read):
            self._read += RECORD.size
            self._offsets.append(offset)
            self._times.append(when)

    def at(self, offset: int, default: float) -> float:
        """Return when the byte at `offset` was first seen, or `default` if no record covers it yet."""
        found = bisect.bisect_right(self._offsets, offset)
        return self._times[found] if found < len(self._times) else default

    def forget(self, offset: int) -> None:
        """Drop the times before `offset`. They are no longer needed, and 20 records are added each second."""
        found = bisect.bisect_right(self._offsets, offset)
        del self._offsets[:found], self._times[:found]
