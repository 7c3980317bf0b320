"""The position up to which a container's log was read, for resuming without lost or repeated lines. Pure.

The API server returns a log from a given time on, in whole seconds. Each line follows the time at which the
node received it:
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod.
The server returns the same lines in the same order for every request. A position is therefore a second, and
the number of lines of that second and later that were read. The times in a log need not rise.
"""

from __future__ import annotations

import calendar
import functools
import re
import time
from dataclasses import dataclass

__all__ = ["LogPlace", "LogReading"]

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")
_HOLE = b"[jupyter_dist: lines are missing here, the node has them no more]\n"


@dataclass(frozen=True)
class LogPlace:
    """A position in a log: `count` lines of the second `since` and later were read.

    `newest`: the time of the newest of them, in nanoseconds. Both times count from the epoch.
    """

    since: int | None = None
    count: int = 0
    newest: int = 0

    @property
    def since_time(self) -> dict[str, str]:
        """The query parameter for this position."""
        if self.since is None:
            return {}
        return {"sinceTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.since))}


class LogReading:
    """One answer of the API server to a request for a log from `place` on."""

    def __init__(self, place: LogPlace) -> None:
        self._skip, self._newest = place.count, place.newest
        self._known = place.newest
        self._counts: dict[int, int] = {}
        self._rest = b""

    @property
    def place(self) -> LogPlace:
        """The position up to which the log was read."""
        if not self._counts:
            return LogPlace()
        since = min(self._counts)
        return LogPlace(since, sum(self._counts.values()), self._newest)

    def take(self, data: bytes) -> list[tuple[float, bytes]]:
        """Return the new lines that `data` completes, each with the time of its printing."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [told for line in lines for told in self._line(line)]

    def end(self) -> list[tuple[float, bytes]]:
        """Return the last output without a line end. For the end of the log only."""
        rest, self._rest = self._rest, b""
        return self._line(rest) if rest else []

    def _line(self, line: bytes) -> list[tuple[float, bytes]]:
        when, text = _parted(line)
        when = self._newest if when is None else when
        second = when // 1_000_000_000
        if second >= min(self._counts, default=second):
            self._counts[second] = self._counts.get(second, 0) + 1
        newest = max(self._counts, default=second)
        for old in [one for one in self._counts if one < newest - 1]:
            del self._counts[old]
        told = [(when / 1e9, text + b"\n")]
        if self._skip and when <= self._known:
            self._skip -= 1
            return []
        if self._skip:
            # The log jumps past lines that were not read: the node deletes old parts of a log.
            self._skip = 0
            told.insert(0, (when / 1e9, _HOLE))
        self._newest = max(self._newest, when)
        return told


def _parted(line: bytes) -> tuple[int | None, bytes]:
    found = _STAMP.match(line)
    if found is None:
        return None, line
    second = _second(found[1])
    zone = found[3].decode()
    if zone != "Z":
        away = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
        second -= away if zone[0] == "+" else -away
    return second * 1_000_000_000 + int((found[2] or b"0").ljust(9, b"0")), line[found.end() :]


@functools.lru_cache(16)
def _second(stamp: bytes) -> int:
    return calendar.timegm(time.strptime(stamp.decode(), "%Y-%m-%dT%H:%M:%S"))
