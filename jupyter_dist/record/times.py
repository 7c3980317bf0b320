"""Read the time index beside a rank's log, as it grows (written by supervise/indexing.py)."""

from __future__ import annotations

import bisect
import struct
from pathlib import Path

__all__ = ["Times"]

_TIME = struct.Struct("<Qd")


class Times:
    """When the lines of one rank's log came."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._offsets: list[int] = []
        self._times: list[float] = []

    def refresh(self) -> None:
        """Read what was added since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        data = data[: len(data) - len(data) % _TIME.size]
        self._read += len(data)
        for offset, when in _TIME.iter_unpack(data):
            self._offsets.append(offset)
            self._times.append(when)

    def at(self, offset: int, default: float) -> float:
        """When the byte at `offset` was seen to be there."""
        found = bisect.bisect_right(self._offsets, offset)
        return self._times[found] if found < len(self._times) else default

    def forget(self, offset: int) -> None:
        """What comes before `offset` will not be asked for: it grows by 20 records a second."""
        found = bisect.bisect_right(self._offsets, offset)
        del self._offsets[:found], self._times[:found]
