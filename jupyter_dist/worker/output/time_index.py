"""The time index beside a rank's log, `times.idx`: its format, the writers' side and a reader's.

A rank writes its log without times, as fast as it can. Who watches the ranks on their machine looks at the
logs many times a second, and for each that has grown appends a record: how long the log was, and when it was
seen so long. So readers know by when a byte was there, and can put the lines of several ranks in order.

Here the supervisor watches (supervise/log_index.py), on other hosts the agent (agent/line_times.py), by that
host's clock and whether or not a driver is there to receive the log. A first record at offset 0 tells that an
index comes from a host: then the supervisor adds nothing to it.

What was seen of all ranks at one time is a moment. When its records are written, for all of them,
`moment.idx` in the run's folder is set to that time: who wants the ranks' lines in order need not wait for
more of it, and who waits for news hears of that one file.

queries/logs/time_index.py reads many records at once with numpy, which this module does without.
"""

from __future__ import annotations

import bisect
import os
import struct

__all__ = ["Times", "append", "complete_until", "covered", "is_of_host", "note_complete", "records"]

RECORD = struct.Struct("<Qd")
"""The length of the log in bytes, and the time in seconds since the epoch."""
FIELDS = (("offset", "<u8"), ("time", "<f8"))
"""The same for numpy."""


def append(path: str | os.PathLike[str], *added: tuple[int, float]) -> None:
    """Note (length of the log, time). OSError passes through."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)  # whatever the umask is
        os.write(fd, b"".join(RECORD.pack(size, when) for size, when in added))
    finally:
        os.close(fd)


def is_of_host(path: str | os.PathLike[str]) -> bool:
    """Whether the index is written where the rank runs, on another host."""
    found = records(path, count=1)
    return bool(found) and found[0][0] == 0


def covered(path: str | os.PathLike[str]) -> int:
    """Up to which byte of the log the index tells times; 0 while there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(-RECORD.size, os.SEEK_END)
            return int(RECORD.unpack(file.read(RECORD.size))[0])
    except (OSError, struct.error):
        return 0


def records(
    path: str | os.PathLike[str], start: int = 0, count: int | None = None
) -> list[tuple[int, float]]:
    """At most `count` whole records from the byte `start` of the index on; none where there is no file."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(-1 if count is None else count * RECORD.size)
    except OSError:
        return []
    return list(RECORD.iter_unpack(data[: len(data) - len(data) % RECORD.size]))


_MOMENT = struct.Struct("<d")


def note_complete(path: str | os.PathLike[str], when: float) -> None:
    """All records up to that time are written; 0 where that is not known, and there is something new all the
    same. OSError passes through."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)  # whatever the umask is
        os.pwrite(fd, _MOMENT.pack(when), 0)
    finally:
        os.close(fd)


def complete_until(path: str | os.PathLike[str]) -> float:
    """Up to which time all ranks' records are there; 0 where nobody says."""
    try:
        with open(path, "rb") as file:
            return float(_MOMENT.unpack(file.read(_MOMENT.size))[0])
    except (OSError, struct.error):
        return 0.0


class Times:
    """When the lines of one rank's log came, as its index grows."""

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
        """When the byte at `offset` was seen to be there; `default` where no record covers it yet."""
        found = bisect.bisect_right(self._offsets, offset)
        return self._times[found] if found < len(self._times) else default

    def forget(self, offset: int) -> None:
        """Drop the times of what comes before `offset`: nobody will ask, and 20 records come each second."""
        found = bisect.bisect_right(self._offsets, offset)
        del self._offsets[:found], self._times[:found]
