"""The random state of a process that was forked."""

from __future__ import annotations

import random
import sys

__all__ = ["reseed"]


def reseed() -> None:
    """Set a fresh random state after a fork. Otherwise all ranks of all runs draw the same numbers.

    worker/settings/seeds.py applies the random state of the notebook when the cell is loaded.
    """
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.seed()
