"""Replacements for functions of other libraries."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["unwrap", "wrap", "wrap_copies"]

Make = Callable[[Callable[..., Any]], Callable[..., Any]]


def wrap(owner: Any, name: str, make: Make) -> bool:
    """Replace `owner.name`, a class's method or a module's function, by `make(original)`.

    Several `make` can replace the same function, each of them once. Returns false if this one already has.
    """
    original = getattr(owner, name)
    done, maker = _makers(original), _maker(make)
    if maker in done:
        return False
    replacement = functools.wraps(original)(make(original))
    replacement._jupyter_dist = done | {maker}  # type: ignore[attr-defined]
    setattr(owner, name, replacement)
    return True


def wrap_copies(module: ModuleType, name: str, make: Make) -> None:
    """Replace a module's function, also where modules of the same package have imported it already."""
    original = getattr(module, name)
    if not wrap(module, name, make):
        return
    package = module.__name__.rpartition(".")[0]
    for other, loaded in list(sys.modules.items()):
        if (other == package or other.startswith(f"{package}.")) and vars(loaded).get(name) is original:
            setattr(loaded, name, getattr(module, name))


def unwrap(owner: Any, name: str, make: Make) -> None:
    """Undo `wrap`. Does nothing if `owner.name` was replaced by something else since."""
    found = getattr(owner, name)
    if _maker(make) in _makers(found) - _makers(getattr(found, "__wrapped__", None)):
        setattr(owner, name, found.__wrapped__)


def _makers(function: Any) -> frozenset[str]:
    """Return which `make` have replaced the function."""
    found = getattr(function, "_jupyter_dist", None)
    return found if isinstance(found, frozenset) else frozenset()


def _maker(make: Make) -> str:
    function = make.func if isinstance(make, functools.partial) else make
    return f"{function.__module__}.{function.__qualname__}"
