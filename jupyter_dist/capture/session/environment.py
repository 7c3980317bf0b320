"""The environment variables that a notebook has set. The ranks of its session follow them."""

from __future__ import annotations

import functools
import os

from ...option_values import is_set_for_ranks

__all__ = ["changed"]

_OF_RANKS = ("CUDA_VISIBLE_DEVICES", "MPLBACKEND")
"""Variables that ranks have with other values than the notebook, as `is_set_for_ranks`."""


def changed() -> dict[str, str]:
    """Return the variables that this process has set since it began, without those that each rank has."""
    before = _before()
    return {
        name: value
        for name, value in os.environ.items()
        if before.get(name) != value and not is_set_for_ranks(name) and name not in _OF_RANKS
    }


@functools.cache
def _before() -> dict[str, str]:
    """Return the environment in which this process began."""
    try:
        with open("/proc/self/environ", "rb") as file:
            lines = os.fsdecode(file.read()).split("\0")
    except OSError:  # not on Linux
        return {}
    return {name: value for name, _, value in (line.partition("=") for line in lines)}
