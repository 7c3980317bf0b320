"""Fold equal lines of several ranks into one: `[0-7] epoch 1`.

A line joins an equal one only where that stands after the rank's own line before it, so the
order of each rank's lines is what it printed; no line is lost and none is invented.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Entry", "Fold", "ranges"]


@dataclass(eq=False)
class Entry:
    """One shown line. `ranks` is empty for a line of ours, such as the start of an attempt."""

    number: int
    text: str
    time: float
    ranks: set[int] = field(default_factory=set)

    def label(self, limit: int = 24) -> str:
        return f"[{ranges(self.ranks, limit)}]" if self.ranks else ""


def ranges(ranks: Iterable[int], limit: int | None = None) -> str:
    """`0,2-3`. One longer than `limit` is cut to its first ranges and the number of ranks."""
    ordered = sorted(set(ranks))
    parts: list[str] = []
    start = 0
    for i, rank in enumerate(ordered):
        if i + 1 == len(ordered) or ordered[i + 1] != rank + 1:
            first = ordered[start]
            # "0,1" reads better than "0-1" only where more follows; keep one form.
            parts.append(str(first) if first == rank else f"{first}-{rank}")
            start = i + 1
    text = ",".join(parts)
    if limit is None or len(text) <= limit:
        return text
    while len(parts) > 1 and len(",".join(parts)) > limit - 8:
        parts.pop()
    return f"{','.join(parts)},… {len(ordered)} ranks"


class Fold:
    """Entries in the order in which their first line came; at most the last `keep` of them."""

    def __init__(self, keep: int) -> None:
        self.entries: deque[Entry] = deque()
        self.dropped = 0
        """Lines (counted per rank) that fell off the front."""
        self._keep = keep
        self._next = 0
        self._barrier = -1
        self._last: dict[int, int] = {}
        self._equal: dict[str, list[Entry]] = {}

    def add(self, rank: int, text: str, time: float = 0.0) -> None:
        after = max(self._last.get(rank, -1), self._barrier)
        equal = self._equal.get(text)
        if equal:
            at = bisect.bisect_right(equal, after, key=_number)
            if at < len(equal):
                equal[at].ranks.add(rank)
                self._last[rank] = equal[at].number
                return
        entry = self._append(text, time)
        entry.ranks.add(rank)
        self._last[rank] = entry.number
        self._equal.setdefault(text, []).append(entry)

    def mark(self, text: str, time: float = 0.0) -> None:
        """A line of ours. Nothing that comes later joins what stands before it."""
        self._barrier = self._append(text, time).number

    def take(self, until: float) -> list[Entry]:
        """Remove and return the entries at the front that came no later than `until`."""
        taken = []
        while self.entries and self.entries[0].time <= until:
            taken.append(self._pop())
        return taken

    def _append(self, text: str, time: float) -> Entry:
        entry = Entry(self._next, text, time)
        self._next += 1
        self.entries.append(entry)
        while len(self.entries) > self._keep:
            self.dropped += len(self._pop().ranks)
        return entry

    def _pop(self) -> Entry:
        entry = self.entries.popleft()
        equal = self._equal.get(entry.text, [])
        if entry in equal:
            equal.remove(entry)
        if not equal:
            self._equal.pop(entry.text, None)
        return entry


def _number(entry: Entry) -> int:
    return entry.number
