"""The parameters of this trial of a tuning run. They are empty in any other run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["parameters", "tell"]

_parameters: dict[str, Any] = {}


def tell(parameters: Mapping[str, Any]) -> None:
    """Set the parameters of this rank, before the cell begins."""
    _parameters.clear()
    _parameters.update(parameters)


def parameters() -> dict[str, Any]:
    """Return the parameters of this trial of a tuning run by name, such as `{"lr": 0.01, "batch": 32}`.

    The cell has each parameter as a variable. A tuned function gets each as an argument. Use this function in
    code that records all parameters. Outside a tuning run, the dict is empty.
    """
    return dict(_parameters)
