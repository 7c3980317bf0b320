"""A log that somebody else keeps, such as a cloud's, written into a run's folder with each line's time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..folder import make_private, open_private
from ..worker import layout, time_index

__all__ = ["ShownLog"]


class ShownLog:
    """One file of the run's folder. Not for several threads at once.

    Who begins anew, after another process was ended, says up to which byte it knows what was written, and
    writes on from there: what stands in the file beyond that is the same, and is passed over.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self._path, self.size = path, size

    def append(self, told: Sequence[tuple[float, bytes]]) -> None:
        """Lines, each with its end, and when they were printed. OSError passes through."""
        begin, place = self.size, self._path
        data = b"".join(text for _, text in told)
        self.size = begin + len(data)
        make_private(place.parent)
        fd = open_private(place, os.O_WRONLY)
        try:
            there = os.fstat(fd).st_size
            if there >= begin + len(data):
                return
            times = place.with_name(layout.TIMES) if place.name == layout.OUTPUT else None
            if times is not None and there == 0:
                # Before the log: a supervisor would begin the index with its own times.
                time_index.append(times, (0, told[0][0]))
            os.pwrite(fd, data[max(0, there - begin) :], max(there, begin))
        finally:
            os.close(fd)
        if times is not None:
            records, size = [], begin
            for number, (when, text) in enumerate(told):
                size += len(text)
                if size > there and (number + 1 == len(told) or told[number + 1][0] != when):
                    records.append((size, when))
            time_index.append(times, *records)
