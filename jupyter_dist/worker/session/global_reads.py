"""The global names that the values of a session's rank may read when they are used.

A function reads them itself. An object reads them by the methods of its class, and by what it refers to.
Nothing of the user's code runs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
from typing import Any

from ..pickling.used_names import code_names

__all__ = ["global_reads"]

_MOST_OBJECTS = 2000
"""The number of objects up to which one value is searched."""
_SIMPLE = {int, float, complex, bool, str, bytes, bytearray, range, type(None), types.ModuleType}
_ARRAYS = {"numpy", "torch"}
"""Modules whose own classes refer to no code: arrays, tensors, their types and devices."""


def global_reads(main: dict[str, Any]) -> dict[str, list[str] | None]:
    """Return the global names that each value may read; None for a value that is too large to be searched.

    `main`: the namespace of the rank, whose names the functions read. Names that read nothing are left out.
    """
    found = {name: _reads(value, main) for name, value in list(main.items()) if not name.startswith("__")}
    return {name: None if reads is None else sorted(reads) for name, reads in found.items() if reads != set()}


def _reads(value: Any, main: dict[str, Any]) -> set[str] | None:
    reads: set[str] = set()
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if type(each) in _SIMPLE or type(each).__module__ in _ARRAYS or id(each) in seen:
            continue
        seen[id(each)] = each
        if type(each) is types.FunctionType and each.__globals__ is main:
            reads |= code_names(each.__code__).reads
        with contextlib.suppress(Exception):  # another thread changes the value
            waiting += _parts(each)
        if len(seen) + len(waiting) >= _MOST_OBJECTS:
            return None
    return reads


def _parts(value: Any) -> list[Any]:
    """Return what a value refers to."""
    kind = type(value)
    if kind is types.FunctionType:
        cells = (value.__closure__ or (), value.__defaults__ or (), vars(value).values())
        return list(itertools.chain(*cells))
    if kind is types.CellType:
        return [value.cell_contents]
    if kind is types.MethodType:
        return [value.__self__, value.__func__]
    if kind is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    if kind is property:
        return [value.fget, value.fset, value.fdel]
    if kind in (staticmethod, classmethod):
        return [value.__func__]
    if issubclass(kind, type):
        return [*value.__bases__, *vars(value).values()] if value.__module__ == "__main__" else []
    parts: list[Any] = [kind]
    if issubclass(kind, (list, tuple, set, frozenset)):
        parts += itertools.islice(value, _MOST_OBJECTS)
    elif issubclass(kind, dict):
        parts += itertools.islice(value.values(), _MOST_OBJECTS)
    with contextlib.suppress(AttributeError):
        parts += object.__getattribute__(value, "__dict__").values()
    return parts
