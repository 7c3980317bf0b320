"""The logs of all ranks as one: by time, equal lines of several ranks folded, with pages by row number.

A *segment* is a stretch of whole lines of one rank's log, between two records of its time index
(segments.py). Segments are ordered by (time, rank). Segments of one time that were read together are a
*moment*. A line belongs to the record that saw its end. So a row that was shown once keeps its number.

Segments are put into *groups* of at most half a second and 256 kB. Lines are folded within their group.
`fold` is a function of the group's segments. So only a group's first row and first segment are stored.
A group that is still open may gain rows at its end, and its rows may gain ranks. Nothing else ever changes.
A segment above 64 kB is a group of its own and is not folded. Nobody can read that fast.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...folder import RankFolder
from ...worker.output import time_index
from .folding import Folded, Part, fold, split
from .line_index import LineIndex
from .segments import CHUNK, Columns, RankSegments, Segment

__all__ = ["AllIndex", "Row"]

_WINDOW_S = 0.5
_GROUP_BYTES = 256 << 10
_PLAIN_BYTES = 64 << 10
_SETTLE_S = 0.01
"""Within this time, the supervisor has written the records of a moment for all ranks."""
_SETTLED_S = 0.001
"""Interval of checks, if the supervisor writes that a moment is complete."""


class Row(NamedTuple):
    """One row: a line of `ranks[0]`. The other ranks wrote the same line."""

    ranks: tuple[int, ...]
    time: float
    data: bytes
    whole: bool = True


class AllIndex:
    """Rows of one attempt. Several threads may use it. `refresh` adds what was appended."""

    def __init__(self, folders: Sequence[RankFolder], indexes: Sequence[LineIndex], moment: Path) -> None:
        self._folders, self._indexes, self._moment_file = folders, indexes, moment
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._columns = Columns()
        self._ranks = [
            RankSegments(number, folder, index.log)
            for number, (folder, index) in enumerate(zip(self._folders, self._indexes, strict=True))
        ]
        self._parts: list[Part] | None = None
        self._folds: dict[int, Folded] = {}
        """The latest groups, which are read most often."""
        self._counted = self._bytes = 0
        self._began = 0.0
        self._moment = 0
        self._final: list[int] | None = None

    def refresh(self, *, ended: float | None) -> Columns:
        """Read what is new.

        `ended` is the time of the attempt's end. Then lines without a record are added last, and an
        unfinished line too. Before the end they wait for the supervisor's next record (50 ms).
        """
        with self._lock:
            if self._final is not None:
                if ended is not None and self._final == [rank.size() for rank in self._ranks]:
                    return self._columns
                self._reset()
            while self._take_records():
                pass
            if ended is not None:
                self._take_rest(ended)
            self._count_open()
            return self._columns

    def _take_records(self) -> bool:
        """Take new records. Returns whether there are more.

        The supervisor writes the records of a moment from rank 0 up. This method reads from the last rank
        down, and not beyond the latest moment of an earlier read. So no later record sorts before a taken
        one.
        """
        complete = time_index.complete_until(self._moment_file)
        more = [rank for rank in self._ranks if rank.read_times()]
        known = [float(rank.pending["time"][-1]) for rank in self._ranks if len(rank.pending)]
        if not known:
            return False
        until = max(known)
        if more:  # only up to the time for which the records of all ranks are known
            until = min(float(rank.pending["time"][-1]) for rank in more)
        elif complete < until:
            # If a reader takes a moment in two halves, its rows differ a little from those of others.
            self._wait_for(until, known=complete > 0)
            for rank in reversed(self._ranks):
                rank.read_times()
        times, numbers, offsets = [], [], []
        for rank in self._ranks:
            fit = int(np.searchsorted(rank.pending["time"], until, "right"))
            times.append(rank.pending["time"][:fit])
            offsets.append(rank.pending["offset"][:fit])
            numbers.append(np.full(fit, rank.number))
            rank.pending = rank.pending[fit:]
        when, number, offset = np.concatenate(times), np.concatenate(numbers), np.concatenate(offsets)
        order = np.lexsort((number, when))
        latest: tuple[float, int] | None = None
        for moment, rank_number, end in zip(
            when[order].tolist(), number[order].tolist(), offset[order].tolist(), strict=True
        ):
            # If a rank occurs twice at one time (the clock was set back), a new moment begins.
            if latest is None or moment != latest[0] or rank_number <= latest[1]:
                self._moment += 1
            latest = (moment, rank_number)
            self._add(self._ranks[rank_number].segment(moment, end))
        return bool(more)

    def _wait_for(self, moment: float, *, known: bool) -> None:
        """Wait until the records of a moment are written for all ranks.

        `known`: a file shows when they are.
        """
        left = min(_SETTLE_S, moment + _SETTLE_S - time.time())
        until = time.monotonic() + left
        while left > 0 and not (known and time_index.complete_until(self._moment_file) >= moment):
            time.sleep(min(_SETTLED_S, left) if known else left)
            left = until - time.monotonic()

    def _take_rest(self, ended: float) -> None:
        sizes = [rank.size() for rank in self._ranks]
        self._moment += 1
        for rank, size in zip(self._ranks, sizes, strict=True):
            self._add(rank.segment(ended, size))
        self._moment += 1
        for rank, size in zip(self._ranks, sizes, strict=True):
            self._add(rank.segment(ended, size, unfinished=True))
        self._final = sizes

    def _add(self, segment: Segment | None) -> None:
        if segment is None:
            return
        segment = replace(segment, moment=self._moment)
        columns, size = self._columns, segment.end - segment.start
        if size > _PLAIN_BYTES:
            self._close()
            columns.begin_group(True)
            columns.add(segment)
            columns.total += segment.count
            columns.stable = columns.total
            return
        if self._parts is not None and (
            segment.time - self._began > _WINDOW_S or self._bytes + size > _GROUP_BYTES
        ):
            self._close()
        if self._parts is None:
            self._parts, self._counted, self._bytes, self._began = [], 0, 0, segment.time
            columns.begin_group(False)
        columns.add(segment)
        self._bytes += size
        self._parts.append(self._part(segment))

    def _close(self) -> None:
        self._count_open()
        self._parts = None
        self._columns.stable = self._columns.total

    def _count_open(self) -> None:
        if self._parts is not None and len(self._parts) != self._counted:
            self._counted = len(self._parts)
            folded, group = fold(tuple(self._parts)), self._columns.groups - 1
            before = self._folds.get(group - 1)
            self._folds = {group: folded} if before is None else {group - 1: before, group: folded}
            self._columns.total = self._columns.group_rows[-1] + folded.count

    def _part(self, segment: Segment) -> Part:
        # Empty if the run was removed meanwhile.
        data = self._indexes[segment.rank].log.read(segment.start, segment.end - segment.start)
        return Part(segment.rank, segment.time, split(data), segment.moment)

    def rows(self, columns: Columns, start: int, count: int) -> Iterator[Row]:
        """Yield at most `count` rows, from number `start` on."""
        group = bisect_right(columns.group_rows, start) - 1
        groups = columns.groups
        while 0 <= group < groups and count > 0:
            skip = start - columns.group_rows[group]
            for row in self._group(columns, group, skip, count):
                yield row
                start += 1
                count -= 1
            group += 1
            if group < groups:
                start = max(start, columns.group_rows[group])

    def _group(self, columns: Columns, group: int, skip: int, count: int) -> Iterator[Row]:
        if columns.group_plain[group]:
            for segment in columns.segments(group):
                yield from self._plain(columns, group, segment, skip, count)
            return
        folds = self._folds  # other threads replace the dict, but never change it
        known = folds.get(group) if columns is self._columns else None
        for when, line, ranks in (known or self.folded(columns, group)).rows(skip, skip + count):
            yield Row(ranks, when, line)

    def _plain(self, columns: Columns, group: int, segment: Segment, skip: int, count: int) -> Iterator[Row]:
        after = columns.group_rows[group + 1] if group + 1 < columns.groups else columns.total
        count = min(count, after - columns.group_rows[group] - skip)
        index = self._indexes[segment.rank]
        index.refresh()
        for line in index.read(segment.line + skip, count):
            yield Row((segment.rank,), segment.time, line.data, line.whole)
            count -= 1
        for rest in index.rest() if count > 0 else ():
            yield Row((segment.rank,), segment.time, rest.data, rest.whole)

    def folded(self, columns: Columns, group: int) -> Folded:
        """Return the rows of a folded group, with all segments that it has by now."""
        return fold([self._part(segment) for segment in columns.segments(group)])

    def read(self, segment: Segment, count: int) -> bytes:
        """Return the first `count` bytes of a segment."""
        return self._indexes[segment.rank].log.read(segment.start, count)

    def text(
        self, columns: Columns, may_match: Callable[[bytes], bool] | None = None
    ) -> Iterator[bytes | int]:
        """Yield the rows' lines in pieces of whole lines, each with a newline. Fast if nothing folds.

        `may_match`: whether some lines are wanted. Instead of others the number of rows may be yielded, which
        saves folding them.
        """
        for group in range(columns.groups):
            segments = [*columns.segments(group)]
            if columns.group_plain[group]:
                for segment in segments:
                    yield from self._raw(segment)
            elif segments:
                closed = group + 1 < columns.groups
                if closed and may_match is not None and not self._may_match(segments, may_match):
                    yield columns.group_rows[group + 1] - columns.group_rows[group]
                else:
                    yield b"\n".join(self.folded(columns, group).lines()) + b"\n"

    def _may_match(self, segments: Sequence[Segment], may_match: Callable[[bytes], bool]) -> bool:
        data = b"".join(self.read(segment, segment.end - segment.start) for segment in segments)
        # The text of a row that stands for different pictures is in no line.
        return b" #" in data or may_match(data)

    def _raw(self, segment: Segment) -> Iterator[bytes]:
        last, log = b"", self._indexes[segment.rank].log
        for start in range(segment.start, segment.end, CHUNK):
            last = log.read(start, min(CHUNK, segment.end - start))
            yield last
        if last and not last.endswith(b"\n"):
            yield b"\n"
