"""Folding of equal lines of several ranks into one: `[0-7] epoch 1`.

A line joins an equal line only if that line follows the rank's own previous line. So the lines of each rank
keep the order in which the rank printed them. No line is lost, and none is invented.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .output_tags import together, untagged

__all__ = ["Entry", "Fold", "members", "named", "pick", "ranges"]

_LOOK_BACK = 100


@dataclass(eq=False)
class Entry:
    """One shown line. `ranks` is empty for a line of jupyter-dist itself, such as the start of an attempt."""

    number: int
    text: str
    time: float
    ranks: set[int] = field(default_factory=set)
    key: str = ""
    """The part of the text that must be equal in folded lines."""

    def label(self, limit: int = 24) -> str:
        return f"[{ranges(self.ranks, limit)}]" if self.ranks else ""


def named(ranks: Iterable[int]) -> str:
    """Return `rank 3` or `ranks 0,2-4`."""
    listed = sorted(ranks)
    return f"{'rank' if len(listed) == 1 else 'ranks'} {ranges(listed, 60)}"


def members(text: str) -> set[int]:
    """Return the ranks of a text such as `0,2-3`, the inverse of `ranges`. Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def ranges(ranks: Iterable[int], limit: int | None = None) -> str:
    """Return ranks as `0,2-3`.

    A text longer than `limit` is cut to its first ranges and the number of ranks.
    """
    ordered = sorted(set(ranks))
    parts: list[str] = []
    start = 0
    for i, rank in enumerate(ordered):
        if i + 1 == len(ordered) or ordered[i + 1] != rank + 1:
            first = ordered[start]
            # "0,1" is shorter to read than "0-1" only in a longer list. One form is simpler.
            parts.append(str(first) if first == rank else f"{first}-{rank}")
            start = i + 1
    text = ",".join(parts)
    if limit is None or len(text) <= limit:
        return text
    while len(parts) > 1 and len(",".join(parts)) > limit - 8:
        parts.pop()
    return f"{','.join(parts)},… {len(ordered)} ranks"


class Fold:
    """Folded lines, in an order that keeps each rank's own order. Only the last `keep` entries are stored.

    If a rank has printed nothing for more lines than that, its last line is stored as well.

    Ranks print the same lines at slightly different times. So a line that joins no other is inserted after
    its rank's previous line. All later entries must be younger than `window_s`. Then the next line that all
    ranks have in common still folds.
    """

    def __init__(self, keep: int, window_s: float = 0.3) -> None:
        self.entries: list[Entry] = []
        self.dropped = 0
        """Number of lines (counted per rank) that were dropped at the front."""
        self._keep = keep
        self._window_s = window_s
        self._next = 0
        self._barrier: Entry | None = None
        self._last: dict[int, Entry] = {}
        self._equal: dict[str, list[Entry]] = {}
        self._pinned: dict[int, Entry] = {}

    def shown(self) -> list[Entry]:
        """Return all stored entries, oldest first."""
        return [*self._pins(), *self.entries]

    def _pins(self) -> list[Entry]:
        return sorted(set(self._pinned.values()), key=_number)

    def add(self, rank: int, text: str, time: float = 0.0) -> None:
        """Add a line of a rank. `time` is its time of arrival, on any clock."""
        self._unpin(rank)
        previous = self._last.get(rank, self._barrier)
        if previous is None or (self._barrier is not None and previous.number < self._barrier.number):
            previous = self._barrier
        key = untagged(text)
        equal = self._equal.setdefault(key, [])
        at = 0 if previous is None else bisect.bisect_right(equal, previous.number, key=_number)
        if at < len(equal):
            equal[at].ranks.add(rank)
            equal[at].text = together(equal[at].text, text)
            self._last[rank] = equal[at]
            return
        entry = Entry(self._next, text, time, {rank}, key)
        self._insert(entry, self._place(rank, previous, time))
        self._last[rank] = entry
        equal.append(entry)
        self._trim()

    def mark(self, text: str, time: float = 0.0) -> None:
        """Add a line of jupyter-dist itself. Later lines do not join lines before it."""
        self._barrier = Entry(self._next, text, time)
        self._insert(self._barrier, len(self.entries))
        self._trim()

    def take(self, until: float) -> list[Entry]:
        """Remove and return the entries at the front that arrived no later than `until`."""
        taken = self._pins()
        self._pinned.clear()
        younger = (at for at, entry in enumerate(self.entries) if entry.time > until)
        front = self.entries[: next(younger, len(self.entries))]
        del self.entries[: len(front)]
        for entry in front:
            self._forget(entry)
        return taken + front

    def _place(self, rank: int, previous: Entry | None, time: float) -> int:
        """Return the position for a line that joins no other: among the newest entries, after `previous`."""
        end = len(self.entries)
        for at in range(end, max(0, end - _LOOK_BACK), -1):
            before = self.entries[at - 1]
            if before is previous or before.time < time - self._window_s:
                break
        else:
            at = max(0, end - _LOOK_BACK)
            if at:
                return end
        # Place the line beside single lines of lower ranks, one line of each rank.
        passed: set[int] = set()
        while at < end and len(self.entries[at].ranks) == 1:
            (other,) = self.entries[at].ranks
            if other > rank or other in passed:
                break
            passed.add(other)
            at += 1
        return at

    def _insert(self, entry: Entry, at: int) -> None:
        self._next += 1
        if at < len(self.entries):
            entry.number = self.entries[at].number
            for later in self.entries[at:]:
                later.number += 1
        self.entries.insert(at, entry)

    def _trim(self) -> None:
        while len(self.entries) > self._keep:
            self._drop(self._pop())

    def _drop(self, entry: Entry) -> None:
        """Pin the entry for those of its ranks that have printed nothing since."""
        last = {rank for rank in entry.ranks if self._last.get(rank) is entry}
        self.dropped += len(entry.ranks) - len(last)
        entry.ranks = last
        self._pinned.update(dict.fromkeys(last, entry))

    def _unpin(self, rank: int) -> None:
        entry = self._pinned.pop(rank, None)
        if entry is not None:
            entry.ranks.discard(rank)
            self.dropped += 1

    def _pop(self) -> Entry:
        entry = self.entries.pop(0)
        self._forget(entry)
        return entry

    def _forget(self, entry: Entry) -> None:
        """Let no later line join the entry."""
        equal = self._equal.get(entry.key, [])
        if entry in equal:
            equal.remove(entry)
        if not equal:
            self._equal.pop(entry.key, None)


def pick(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """Return at most `limit` entries, in order.

    The newest lines of every rank precede more lines of one rank.
    """
    if len(entries) <= limit:
        return list(entries)
    ranks = {rank for entry in entries for rank in entry.ranks}
    quota = max(1, limit // max(1, len(ranks)))
    taken: Counter[int] = Counter()
    picked: set[int] = set()
    for entry in reversed(entries):
        if len(picked) == limit:
            break
        if not entry.ranks or any(taken[rank] < quota for rank in entry.ranks):
            picked.add(entry.number)
            taken.update(entry.ranks)
    for entry in reversed(entries):
        if len(picked) == limit:
            break
        picked.add(entry.number)
    return [entry for entry in entries if entry.number in picked]


def _number(entry: Entry) -> int:
    return entry.number
