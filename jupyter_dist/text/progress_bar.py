"""One progress bar of one rank: its count and its rate."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

__all__ = ["Bar"]

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

    def take(self, when: float, n: float, total: float | None, desc: str) -> None:
        if self.samples and (n < self.n or self.closed):
            self.samples.clear()  # the loop started again
        self.desc, self.total, self.closed = desc, total, False
        if not self.samples or n != self.n:  # otherwise only the bar's text has changed
            self.samples.append((when, n))

    def say(self, note: str, unit: str, closed: bool) -> None:
        """Set what is known besides the count."""
        self.note, self.unit, self.closed = note, unit, closed

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
