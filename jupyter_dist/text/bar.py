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
    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def take(self, when: float, n: float, total: float | None, desc: str) -> None:
        if self.samples and n < self.n:
            self.samples.clear()  # the loop began again
        self.desc, self.total = desc, total
        self.samples.append((when, n))

    @property
    def n(self) -> float:
        return self.samples[-1][1]

    @property
    def share(self) -> float:
        """What is done, of 1; of an unknown total: n itself."""
        return self.n / self.total if self.total else self.n

    @property
    def done(self) -> bool:
        return self.total is not None and self.n >= self.total

    def rate(self) -> float | None:
        """Steps a second over the last samples; None while it stands."""
        (first, low), (last, high) = self.samples[0], self.samples[-1]
        if not (last > first and high > low):
            return None
        rate = (high - low) / (last - first)
        return rate if 1e-9 < rate < math.inf else None
