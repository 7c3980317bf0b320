"""Find the rows of the log of all ranks in which lines of one rank stand."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from .log_all import AllIndex
from .log_segments import Columns, Segment

__all__ = ["Found", "Rows"]

Found = tuple[int, int, tuple[int, ...]]
"""A line: its number in its rank's log, its row in the log of all, and the ranks whose row that is."""


class Rows:
    """For one question: what was folded for it is kept."""

    def __init__(self, index: AllIndex, columns: Columns) -> None:
        self._index, self._columns = index, columns
        self.stable = columns.stable
        self._known = len(columns.moments)
        """What other threads add meanwhile is not in what was folded."""
        self._folded: dict[int, dict[int, list[tuple[int, tuple[int, ...]]]]] = {}

    def find(self, rank: int, start: int, stop: int, most: int) -> Iterator[Found]:
        """The lines of the shown bytes [start, stop) of a rank's log, as far as they have rows by now; the
        first `most` of them."""
        columns = self._columns
        own = columns.of_rank.get(rank, ())
        at = bisect_right(own, start, key=lambda number: columns.starts[number]) - 1
        for number in own[max(0, at) :]:
            segment = columns.segment(number)
            if number >= self._known or segment.start >= stop or most <= 0:
                return
            if segment.end <= start:
                continue
            data = self._index.read(segment, min(stop, segment.end) - segment.start)
            first = segment.line + data[: max(0, start - segment.start)].count(b"\n")
            last = segment.line + data[:-1].count(b"\n")
            for line in range(first, min(last + 1, first + most)):
                row, ranks = self._row(number, segment, line)
                most -= 1
                yield line, row, ranks

    def _row(self, number: int, segment: Segment, line: int) -> tuple[int, tuple[int, ...]]:
        columns = self._columns
        group = bisect_right(columns.group_segments, number) - 1
        begin = columns.group_rows[group]
        if columns.group_plain[group]:
            return begin + line - segment.line, (segment.rank,)
        by_rank = self._folded.get(group)
        if by_rank is None:
            by_rank = self._folded[group] = {}
            folded = self._index.folded(columns, group)
            for row, (_, _, ranks) in enumerate(folded.rows(0, folded.count), begin):
                for rank in ranks:
                    by_rank.setdefault(rank, []).append((row, ranks))
        # A rank's lines stand in its own order, whoever else has printed them.
        first = next(one.line for one in columns.segments(group) if one.rank == segment.rank)
        return by_rank[segment.rank][line - first]
