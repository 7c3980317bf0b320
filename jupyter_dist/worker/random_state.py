"""The random state of a process that was forked."""

from __future__ import annotations

import os

__all__ = ["reseed"]

_FORKED = ("random", "numpy", "torch")
"""The generators that have a state as soon as they are imported."""


def reseed() -> None:
    """Set a fresh random state after a fork. Otherwise all ranks of all runs draw the same numbers.

    worker/settings/seeds.py applies the random state of the notebook when the cell is loaded.
    """
    from .settings import seeds  # a supervisor that was started cold needs no settings

    for name in _FORKED:
        seeds.sow(name, int.from_bytes(os.urandom(32), "big"))
