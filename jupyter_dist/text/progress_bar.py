"""Progress bars of ranks: count, rate, and which rank is behind."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .safe import one_line

__all__ = ["Bar", "behind", "finite"]

_SAMPLES = 20


@dataclass
class Bar:
    """Progress bar as its rank reports it. `samples` has the latest pairs (seconds since the epoch, n)."""

    desc: str = ""
    total: float | None = None
    note: str = ""
    """Text that the bar shows after its count."""
    unit: str = ""
    closed: bool = False
    """The bar has ended, possibly below its total."""
    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    began: float = 0.0
    """When the bar's loop began, in seconds since the epoch."""
    _first: str = ""
    _nth: tuple[int, int] = 0, 0

    def take(self, event: Mapping[str, Any], width: int) -> bool:
        """Take a progress event. Returns False for an invalid event, because a rank may write anything.

        `width`: the most characters of a text.
        """
        n, when = finite(event.get("n")), finite(event.get("time"))
        if n is None or when is None:
            return False
        total, began, nth = finite(event.get("total")), finite(event.get("began")), event.get("nth")
        desc = one_line(str(event.get("desc") or ""), width)
        another = not self.samples or began not in (None, self.began)
        if another or n < self.n or self.closed:
            # A loop has started, or the bar was set back.
            self._nth = (nth if isinstance(nth, int) else 0, 0 if another else self._nth[1] + 1)
            self._first = one_line(str(event.get("first") or desc), width)
            self.began = when if began is None else began
            self.samples.clear()
        self.desc, self.total = desc, total if total and total > 0 else None
        if not self.samples or n != self.n:  # otherwise only the bar's text has changed
            self.samples.append((when, n))
        self.note = one_line(str(event.get("note") or ""), width)
        self.unit = one_line(str(event.get("unit") or ""), 20)
        self.closed = event.get("closed") is True
        return True

    @property
    def loop(self) -> tuple[object, ...]:
        """Return what the bars of one loop have in common on all ranks."""
        return self._first, self.total, self._nth

    @property
    def n(self) -> float:
        return self.samples[-1][1]

    @property
    def share(self) -> float:
        """Return the finished share, from 0 to 1. If the total is unknown, return n."""
        return self.n / self.total if self.total else self.n

    @property
    def done(self) -> bool:
        return self.closed or (self.total is not None and self.n >= self.total)

    def rate(self) -> float | None:
        """Return steps per second over the last samples. None if the count does not change."""
        (first, low), (last, high) = self.samples[0], self.samples[-1]
        if not (last > first and high > low):
            return None
        rate = (high - low) / (last - first)
        return rate if 1e-9 < rate < math.inf else None


def behind(bars: Mapping[int, Bar]) -> int:
    """Return the rank that is behind the others. `bars` has one bar of each rank, and at least one.

    Only bars of one loop can be compared. Of different loops, the one that began first is behind.
    """
    began: dict[object, float] = {}
    for bar in bars.values():
        began[bar.loop] = min(bar.began, began.get(bar.loop, math.inf))
    return min(bars, key=lambda rank: (bars[rank].done, began[bars[rank].loop], bars[rank].share, rank))


def finite(value: object) -> float | None:
    """Return the value if it is a number that a view can show, else None."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return value if -1e15 < value < 1e15 else None
