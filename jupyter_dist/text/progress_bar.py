"""One progress bar of one rank: where it stands, and how fast it moves."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

__all__ = ["Bar"]

_SAMPLES = 20


@dataclass
class Bar:
    """Fed with what the rank reports; `samples` holds its last (seconds since the epoch, n)."""

    desc: str = ""
    total: float | None = None
    note: str = ""
    """What the bar says behind its count."""
    unit: str = ""
    closed: bool = False
    """It is over, also where it has not come to its total."""
    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def take(self, when: float, n: float, total: float | None, desc: str) -> None:
        if self.samples and (n < self.n or self.closed):
            self.samples.clear()  # the loop began again
        self.desc, self.total, self.closed = desc, total, False
        if not self.samples or n != self.n:  # else it says something else of the same count
            self.samples.append((when, n))

    def say(self, note: str, unit: str, closed: bool) -> None:
        """What is known besides the count."""
        self.note, self.unit, self.closed = note, unit, closed

    @property
    def n(self) -> float:
        return self.samples[-1][1]

    @property
    def share(self) -> float:
        """What is done, of 1; of an unknown total: n itself."""
        return self.n / self.total if self.total else self.n

    @property
    def done(self) -> bool:
        return self.closed or (self.total is not None and self.n >= self.total)

    def rate(self) -> float | None:
        """Steps a second over the last samples; None while it stands."""
        (first, low), (last, high) = self.samples[0], self.samples[-1]
        if not (last > first and high > low):
            return None
        rate = (high - low) / (last - first)
        return rate if 1e-9 < rate < math.inf else None
