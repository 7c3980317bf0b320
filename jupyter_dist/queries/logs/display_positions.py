"""Positions of displays in the logs: between which lines of a rank's log and of the log of all ranks.

An event of a display contains the length of the rank's log when the display was shown. It also contains the
length of the display's text form, which follows in the log. A view may replace these lines by the display,
unless another rank has printed the same lines by other means.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...folder import RunFolder
from ...record.outputs.rich_output import ShownOutput
from ..answers.media import Place
from .merged_log import AllIndex
from .pages import AttemptLogs, opened
from .segments import Columns, Segment

__all__ = ["Found", "Rows", "key_of", "places"]


_MOST_LINES, _MOST_BYTES = 200, 64 << 10
"""Limits of a display's text form.

Above them the display is shown below the first line, and the text stays.
"""

_Key = tuple[int, int, int]


def key_of(rank: int, shown: ShownOutput) -> _Key:
    """Return the key of a display among those of all ranks.

    A forked process of a rank restarts the event numbers.
    """
    return rank, shown.seq, shown.at


class _Stretch(NamedTuple):
    """Log lines of one display."""

    lines: list[Found]
    in_text: bool
    """Whether the lines are the display's text form and nothing else."""


def places(
    folder: RunFolder, attempt: int, groups: Sequence[Sequence[tuple[int, ShownOutput]]]
) -> dict[_Key, Place]:
    """Return the position of each display of an attempt whose lines are known by now, by `key_of`.

    `groups`: the displays that ranks show at the same place of the cell.
    """
    if not any(groups):
        return {}
    logs, status = opened(folder, attempt)
    ended = logs.ended(status, None)
    if logs.world_size > 1:
        rows = Rows(logs.all, logs.all.refresh(ended=ended))
    else:
        logs.ranks[0].refresh(ended=ended is not None)
        rows = None
    found: dict[_Key, Place] = {}
    for group in groups:
        known = {key_of(rank, one): logs.places.get(key_of(rank, one)) for rank, one in group}
        kept = {key: place for key, place in known.items() if place is not None}
        if len(kept) < len(known):
            # Whether a row is only text of the display depends on all ranks of that row.
            stretches = {
                key_of(rank, one): _stretch(logs, rows, rank, one, ended is not None) for rank, one in group
            }
            kept = _placed(stretches)
            stable = {
                key: place
                for key, place in kept.items()
                if place["rows"] and (rows is None or place["row"] + place["rows"] <= rows.stable)
            }
            logs.places.update(stable)
        found.update(kept)
    return found


def _stretch(
    logs: AttemptLogs, rows: Rows | None, rank: int, shown: ShownOutput, ended: bool
) -> _Stretch | None:
    """Return the lines of a display. None if they have not arrived yet, or there are none."""
    index = logs.ranks[rank]
    log = index.log
    if not ended and log.in_log(log.size) < shown.at + shown.text_bytes:
        return None
    start, stop = log.shown(shown.at), log.shown(shown.at + shown.text_bytes)
    begins = start == 0 or log.read(start - 1, 1) == b"\n"
    in_text = stop > start and begins
    if stop <= start:
        if not start:
            return None  # no line precedes the display
        start, stop = start - 1, start
    stop = min(stop, start + _MOST_BYTES)
    number = log.read(start, stop - start - 1).count(b"\n") + 1
    if rows is None:
        first = index.line_at(start)
        found: list[Found] = [(line, line, (0,)) for line in range(first, min(first + number, index.count))]
    else:
        found = list(rows.find(rank, start, stop, min(number, _MOST_LINES)))
    if not found or (not ended and len(found) < min(number, _MOST_LINES)):
        return None
    return _Stretch(found, in_text and number <= _MOST_LINES and stop - start < _MOST_BYTES)


def _placed(stretches: dict[_Key, _Stretch | None]) -> dict[_Key, Place]:
    said: dict[int, set[int]] = {}
    """By row: the ranks whose display this row repeats as text."""
    for (rank, *_), stretch in stretches.items():
        for _, row, _ in stretch.lines if stretch and stretch.in_text else ():
            said.setdefault(row, set()).add(rank)
    found: dict[_Key, Place] = {}
    for key, stretch in stretches.items():
        if stretch is None:
            continue
        line, row, _ = stretch.lines[0]
        lines = len(stretch.lines) if stretch.in_text else 0
        numbers = [number for _, number, _ in stretch.lines]
        alone = all(set(ranks) <= said.get(number, set()) for _, number, ranks in stretch.lines)
        together = numbers == list(range(row, row + lines))
        found[key] = {
            "rank": key[0],
            "line": line,
            "lines": lines,
            "row": row,
            "rows": lines if alone and together else 0,
        }
    return found


Found = tuple[int, int, tuple[int, ...]]
"""A line: its number in its rank's log, its row in the log of all ranks, and the ranks of that row."""


class Rows:
    """Rows of the log of all ranks, for one question. Folded groups are cached for that question."""

    def __init__(self, index: AllIndex, columns: Columns) -> None:
        self._index, self._columns = index, columns
        self.stable = columns.stable
        self._known = len(columns.moments)
        """Number of segments at the start.

        Segments that other threads add later are not in the folded groups.
        """
        self._folded: dict[int, dict[int, list[tuple[int, tuple[int, ...]]]]] = {}

    def find(self, rank: int, start: int, stop: int, most: int) -> Iterator[Found]:
        """Yield at most `most` lines of the shown bytes [start, stop) of a rank's log.

        Lines without a row are left out.
        """
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
        # A rank's lines keep their own order, whichever other ranks have printed them.
        first = next(one.line for one in columns.segments(group) if one.rank == segment.rank)
        return by_rank[segment.rank][line - first]
