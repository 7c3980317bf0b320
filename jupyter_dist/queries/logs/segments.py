"""Segments of the ranks' logs, cut at the records of their time indexes. A million need little memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...folder import RankFolder
from ...record.logs.rendered_log import RenderedLog
from ...worker import listing
from .time_index import MAX_RECORDS, RECORD, records

__all__ = ["Columns", "RankSegments", "Segment"]

CHUNK = 4 << 20
"""Bytes of a log per read."""


@dataclass(frozen=True)
class Segment:
    """Stretch of whole shown lines of one rank's log, and a time by which they had been written."""

    time: float
    rank: int
    start: int
    end: int
    line: int
    """Number of its first line in the rank's own log."""
    count: int = 0
    moment: int = 0


class Columns:
    """Packed segments and groups. A long run has a million of them.

    One thread may add while others read. A new segment counts only after its last column was written.
    """

    def __init__(self) -> None:
        self.times, self.ranks = array("d"), array("I")
        self.starts, self.ends, self.lines = array("Q"), array("Q"), array("Q")
        self.moments = array("Q")
        self.of_rank: dict[int, array[int]] = {}
        """Numbers of each rank's segments."""
        self.group_rows, self.group_segments, self.group_plain = array("Q"), array("Q"), array("B")
        self.total = 0
        self.stable = 0
        """Rows before this one are in closed groups."""

    def add(self, segment: Segment) -> None:
        self.times.append(segment.time)
        self.ranks.append(segment.rank)
        self.starts.append(segment.start)
        self.ends.append(segment.end)
        self.lines.append(segment.line)
        self.moments.append(segment.moment)
        self.of_rank.setdefault(segment.rank, array("Q")).append(len(self.moments) - 1)

    def begin_group(self, plain: bool) -> None:
        self.group_rows.append(self.total)
        self.group_segments.append(len(self.times))
        self.group_plain.append(plain)

    @property
    def groups(self) -> int:
        return len(self.group_plain)

    def segments(self, group: int) -> Iterator[Segment]:
        first = self.group_segments[group]
        last = self.group_segments[group + 1] if group + 1 < self.groups else len(self.moments)
        for number in range(first, last):
            yield self.segment(number)

    def segment(self, number: int) -> Segment:
        return Segment(
            self.times[number],
            self.ranks[number],
            self.starts[number],
            self.ends[number],
            self.lines[number],
            moment=self.moments[number],
        )


class RankSegments:
    """Cutter of one rank's log into segments, as its time index grows."""

    def __init__(self, number: int, folder: RankFolder, log: RenderedLog) -> None:
        self.number, self.folder, self.log = number, folder, log
        self.pending = np.empty(0, RECORD)
        self.lines = 0
        self.done = 0
        """End of the rank's last segment."""
        self._read = 0
        self._latest = 0.0
        self._scanned = 0

    def read_times(self) -> bool:
        """Read new records. Returns whether there may be more."""
        if listing.size(self.folder.times) < RECORD.itemsize * (self._read + 1):
            return False
        new = records(self.folder.times, self._read).copy()
        if not len(new):
            return False
        self._read += len(new)
        new["time"] = np.maximum.accumulate(np.maximum(new["time"], self._latest))  # a clock set back
        self._latest = float(new["time"][-1])
        self.pending = np.concatenate([self.pending, new])
        return len(new) >= MAX_RECORDS

    def size(self) -> int:
        return listing.size(self.folder.output)

    def segment(self, time: float, until: int, *, unfinished: bool = False) -> Segment | None:
        """Return the lines before an offset of the log that are in no segment yet. None if there are none.

        `unfinished`: the log is complete, so a last line without a newline counts too.
        """
        self.log.refresh(ended=unfinished)
        count, end, shown = 0, self.done, self.log.shown(until)
        while self._scanned < shown:
            chunk = self.log.read(self._scanned, min(CHUNK, shown - self._scanned))
            if not chunk:
                break
            last = chunk.rfind(b"\n") + 1
            if last:
                count += chunk.count(b"\n")
                end = self._scanned + last
            self._scanned += len(chunk)
        if unfinished and self._scanned > end:
            count, end = count + 1, self._scanned
        if not count:
            return None
        found = Segment(time, self.number, self.done, end, self.lines, count)
        self.done, self.lines = end, self.lines + count
        return found
