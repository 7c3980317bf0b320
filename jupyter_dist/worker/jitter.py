"""Draw how long to wait where many wait for the same, so that they do not all ask at one moment."""

from __future__ import annotations

import random

__all__ = ["jitter"]

# Not the module's own numbers: forked processes would draw their siblings', and whoever has seeded `random`
# in this process has to get the numbers that the seed promises.
_RANDOM = random.SystemRandom()


def jitter(low: float, high: float) -> float:
    """By what to multiply a pause: a number from `low` to `high`."""
    return _RANDOM.uniform(low, high)
