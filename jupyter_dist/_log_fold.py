"""Fold equal lines of several ranks within a few segments of their logs.

A line joins an equal one only where that stands after the rank's own line before it, so the order
of each rank's lines is what it printed; no line is lost and none is invented.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Folded", "Part", "fold", "split"]


@dataclass(frozen=True)
class Part:
    """Whole lines of one rank, without their newlines, that were there by `time`."""

    rank: int
    time: float
    lines: list[bytes]


@dataclass(frozen=True)
class Folded:
    """The rows that parts make. `joined` is None where no line is folded."""

    parts: Sequence[Part]
    count: int
    joined: list[tuple[int, int, list[int]]] | None

    def rows(self, start: int, stop: int) -> Iterator[tuple[Part, int, tuple[int, ...]]]:
        """(part, line number in it, ranks) of some of the rows. The first rank is the part's own."""
        if self.joined is not None:
            for number, line, ranks in self.joined[start:stop]:
                yield self.parts[number], line, (ranks[0], *sorted(ranks[1:]))
            return
        for part in self.parts:
            size = len(part.lines)
            for line in range(max(0, start), min(size, stop)):
                yield part, line, (part.rank,)
            start, stop = start - size, stop - size


def split(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n")


def fold(parts: Sequence[Part]) -> Folded:
    """What a view of all ranks shows of the parts, in their order."""
    count = sum(len(part.lines) for part in parts)
    if _differ(parts):
        return Folded(parts, count, None)
    rows: list[tuple[int, int, list[int]]] = []
    equal: dict[bytes, list[int]] = {}
    last: dict[int, int] = {}
    for number, part in enumerate(parts):
        after = last.get(part.rank, -1)
        for line, text in enumerate(part.lines):
            places = equal.get(text)
            if places is None:
                places = equal[text] = []
            at = bisect_right(places, after)
            if at < len(places):
                after = places[at]
                rows[after][2].append(part.rank)
            else:
                after = len(rows)
                places.append(after)
                rows.append((number, line, [part.rank]))
        last[part.rank] = after
    return Folded(parts, len(rows), rows)


def _differ(parts: Sequence[Part]) -> bool:
    """Whether no two ranks have a line in common: cheap to see, and then there is nothing to fold."""
    if not parts or all(part.rank == parts[0].rank for part in parts):
        return True
    by_rank: dict[int, set[bytes]] = {}
    for part in parts:
        by_rank.setdefault(part.rank, set()).update(part.lines)
    return len(set().union(*by_rank.values())) == sum(map(len, by_rank.values()))
