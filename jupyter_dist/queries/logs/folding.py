"""Folding of equal lines of several ranks within a few segments of their logs.

A line joins an equal line only if that line follows the rank's own previous line. So the lines of each rank
keep the order in which the rank printed them. No line is lost, and none is invented.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ...text.output_tags import together, untagged

__all__ = ["Folded", "Part", "fold", "split"]


@dataclass(frozen=True)
class Part:
    """Whole lines of one rank, without their newlines, that were written by `time`.

    Parts of one `moment` were seen at the same time, each from another rank.
    """

    rank: int
    time: float
    lines: list[bytes]
    moment: int = 0


@dataclass
class _Row:
    part: int
    line: int
    ranks: list[int]
    text: str | None = None
    """Text shown in place of the line, if the ranks did not write exactly the same line."""


@dataclass(frozen=True)
class Folded:
    """Rows of some parts. `joined` is None if no line is folded."""

    parts: Sequence[Part]
    count: int
    joined: list[_Row] | None

    def rows(self, start: int, stop: int) -> Iterator[tuple[float, bytes, tuple[int, ...]]]:
        """Yield (time, line, ranks) of the rows [start, stop). Time and line are those of the first rank."""
        if self.joined is not None:
            for row in self.joined[start:stop]:
                yield self.parts[row.part].time, self._line(row), (row.ranks[0], *sorted(row.ranks[1:]))
            return
        for part in self.parts:
            size = len(part.lines)
            for line in part.lines[max(0, start) : max(0, min(size, stop))]:
                yield part.time, line, (part.rank,)
            start, stop = start - size, stop - size

    def _line(self, row: _Row) -> bytes:
        return self.parts[row.part].lines[row.line] if row.text is None else row.text.encode()

    def lines(self) -> list[bytes]:
        """Return the lines of the rows."""
        if self.joined is not None:
            return [self._line(row) for row in self.joined]
        return [line for part in self.parts for line in part.lines]


def split(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n")


def fold(parts: Sequence[Part]) -> Folded:
    """Return the rows that a view of all ranks shows for these parts.

    The parts of one moment are merged at the lines that they have in common. For example: `epoch 1` of all
    ranks, then each rank's further lines in the order of ranks, then `epoch 2`.
    Rows of earlier moments may gain ranks. Their text changes only if a line stands for a picture and the
    ranks' pictures differ. If parts have no line in common, their order stays.
    """
    keyed = [_keyed(part) for part in parts]
    if _differ(keyed):
        return Folded(parts, sum(len(part.lines) for part in parts), None)
    folding = _Folding(keyed, parts)
    for _, moment in groupby(range(len(parts)), key=lambda number: parts[number].moment):
        merged: list[_Row] = []
        for number in moment:
            merged = folding.merge(merged, number)
        folding.keep(merged)
    return Folded(parts, len(folding.rows), folding.rows)


def _keyed(part: Part) -> Part:
    """Return the part with only those characters that must be equal in folded lines."""
    if not any(line[-8:-6] == b" #" for line in part.lines):
        return part
    lines = [untagged(line.decode("latin-1")).encode("latin-1") for line in part.lines]
    return replace(part, lines=lines)


class _Folding:
    """Rows of the moments so far."""

    def __init__(self, parts: Sequence[Part], written: Sequence[Part]) -> None:
        self.rows: list[_Row] = []
        self._parts = parts
        self._written = written
        self._tagged = any(part is not one for part, one in zip(parts, written, strict=True))
        self._places: dict[bytes, list[int]] = {}
        self._last: dict[int, int] = {}
        """Row of each rank's newest line."""

    def keep(self, merged: list[_Row]) -> None:
        for row in merged:
            for rank in row.ranks:
                self._last[rank] = len(self.rows)
            self._places.setdefault(self._parts[row.part].lines[row.line], []).append(len(self.rows))
            self.rows.append(row)

    def merge(self, merged: list[_Row], number: int) -> list[_Row]:
        """Return the rows of this moment with the lines of one more part merged into them."""
        part = self._parts[number]
        first = self._join_earlier(part, number)
        places = _places(self._parts, merged)
        found: list[_Row] = []
        own: list[_Row] = []
        passed = 0
        for line in range(first, len(part.lines)):
            equal = places.get(part.lines[line], ())
            at = bisect_left(equal, passed)
            if at == len(equal):
                own.append(_Row(number, line, [part.rank]))
                continue
            # Lines of this rank since the last common line follow the lines of the other ranks.
            found += merged[passed : equal[at]]
            found += own
            own = []
            self._join(merged[equal[at]], number, line)
            found.append(merged[equal[at]])
            passed = equal[at] + 1
        return [*found, *merged[passed:], *own]

    def _join(self, row: _Row, number: int, line: int) -> None:
        row.ranks.append(self._parts[number].rank)
        if self._tagged:
            own, other = self._written[row.part].lines[row.line], self._written[number].lines[line]
            if own != other or row.text is not None:
                known = own.decode("utf-8", "replace") if row.text is None else row.text
                row.text = together(known, other.decode("utf-8", "replace"))

    def _join_earlier(self, part: Part, number: int) -> int:
        """Join the part's first lines to rows of earlier moments. Returns the number of joined lines."""
        after = self._last.get(part.rank, -1)
        for line, text in enumerate(part.lines):
            equal = self._places.get(text, ())
            at = bisect_left(equal, after + 1)
            if at == len(equal):
                return line
            after = self._last[part.rank] = equal[at]
            self._join(self.rows[after], number, line)
        return len(part.lines)


def _places(parts: Sequence[Part], rows: list[_Row]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        found.setdefault(parts[row.part].lines[row.line], []).append(place)
    return found


def _differ(parts: Sequence[Part]) -> bool:
    """Return whether no two ranks have a line in common. The check is cheap, and then nothing folds."""
    if not parts or all(part.rank == parts[0].rank for part in parts):
        return True
    by_rank: dict[int, set[bytes]] = {}
    for part in parts:
        by_rank.setdefault(part.rank, set()).update(part.lines)
    return len(set().union(*by_rank.values())) == sum(map(len, by_rank.values()))
