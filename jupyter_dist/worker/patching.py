"""Replacements for functions of other libraries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["wrap"]


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace `owner.name`, a class's method or a module's function, by `make(original)`. Repeatable."""
    original = getattr(owner, name)
    if getattr(original, "_jupyter_dist", False):
        return
    replacement = functools.wraps(original)(make(original))
    replacement._jupyter_dist = True  # type: ignore[attr-defined]
    setattr(owner, name, replacement)
