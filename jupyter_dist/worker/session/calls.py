"""Functions that the notebook calls on a session's ranks, to set and read their names."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .kept_names import forced

__all__ = ["assign", "assign_part", "remove", "value"]


def assign(values: Mapping[str, Any]) -> None:
    """Assign names of this rank."""
    sys.modules["__main__"].__dict__.update(values)
    forced.update(values)


def assign_part(name: str, parts: Sequence[Any]) -> None:
    """Assign this rank's part to a name."""
    assign({name: parts[int(os.environ["RANK"])]})


def remove(name: bytes) -> bool:
    """Delete a name of this rank. Return whether the rank had it.

    `name`: not a string, with which the notebook's value of that name would be sent.
    """
    space = sys.modules["__main__"].__dict__
    found = name.decode() in space
    space.pop(name.decode(), None)
    return found


def value(name: str) -> Any:
    """Return the value of a name of this rank. Raises KeyError."""
    return sys.modules["__main__"].__dict__[name]
