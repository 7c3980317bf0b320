"""Exceptions whose class has a constructor of its own.

Python rebuilds an exception from its class and `args`. A constructor with other parameters then fails, or
computes a second message (https://github.com/python/cpython/issues/44791). So the constructor is not called.
"""

from __future__ import annotations

import types
from typing import Any

from . import Note

__all__ = ["reduce"]


def reduce(obj: Any, note: Note) -> Any:
    kind = type(obj)
    if not _defines(kind, "__init__", "__new__") or _defines(kind, "__reduce__", "__reduce_ex__"):
        return NotImplemented
    reduced = obj.__reduce_ex__(5)
    if not isinstance(reduced, tuple) or reduced[0] is not kind or len(reduced) > 3:
        return NotImplemented
    state = {**((reduced[2] if len(reduced) > 2 else None) or {}), **_slots(obj)}
    return _exception, (kind, *reduced[1]), state or None


def _defines(kind: type, *methods: str) -> bool:
    return any(isinstance(getattr(kind, method, None), types.FunctionType) for method in methods)


def _slots(obj: Any) -> dict[str, Any]:
    own = [vars(base) for base in type(obj).__mro__ if base.__module__ != "builtins"]
    names = [name for space in own for name, value in space.items() if type(value) is _SLOT]
    return {name: getattr(obj, name) for name in names if hasattr(obj, name)}


_SLOT = types.MemberDescriptorType


# A pickle calls this function when it is loaded. Its name is part of the format.


def _exception(kind: Any, *args: Any) -> Any:
    built_in: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    made = built_in.__new__(kind, *args)
    try:
        built_in.__init__(made, *args)  # sets attributes such as `filename` of an OSError
    except (TypeError, ValueError):  # args that another constructor has set
        BaseException.__init__(made, *args)
    return made
