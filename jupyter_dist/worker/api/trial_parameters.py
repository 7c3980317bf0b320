"""The parameters that this trial of a tuning run tries; none in any other run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["parameters", "tell"]

_parameters: dict[str, Any] = {}


def tell(parameters: Mapping[str, Any]) -> None:
    """Say what this rank tries, before the cell begins."""
    _parameters.clear()
    _parameters.update(parameters)


def parameters() -> dict[str, Any]:
    """What this trial of a tuning run tries, by name, as in `{"lr": 0.01, "batch": 32}`.

    The cell has each of them as a variable, and a function that is tuned as an argument; this is for code
    that writes all of them down. Empty outside of a tuning run.
    """
    return dict(_parameters)
