"""Random waiting times, so that many processes do not send their requests at the same moment."""

from __future__ import annotations

import random

__all__ = ["jitter"]

# The generator of the module `random` is not used. Forked processes would draw the same numbers as their
# siblings. A process that has seeded `random` must get the numbers that the seed promises.
_RANDOM = random.SystemRandom()


def jitter(low: float, high: float) -> float:
    """Draw the factor for a pause: a number from `low` to `high`."""
    return _RANDOM.uniform(low, high)
