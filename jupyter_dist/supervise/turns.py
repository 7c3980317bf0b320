"""Looks at some of many ranks in turn, which limits the cost of one look."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["Turns", "turn_size"]

_ALL, _CALLS = 64, 10


def turn_size(count: int) -> int:
    """Return how many of `count` places one call looks at: all of a few, or one tenth."""
    return min(count, max(_ALL, math.ceil(count / _CALLS)))


class Turns:
    """The position in a list whose places are looked at in turn."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> Sequence[int]:
        """Return the next places of a list of that length. Ten calls return each place."""
        size = turn_size(count)
        if size == count:
            return range(count)
        first, self._next = self._next, (self._next + size) % count
        return [(first + more) % count for more in range(size)]
