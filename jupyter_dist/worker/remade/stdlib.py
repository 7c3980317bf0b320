"""Smaller things of the standard library that hold a lock or a generator, or would become something else."""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any

from . import Note

__all__ = ["reduce"]


def reduce(obj: Any, note: Note) -> Any:
    kind = type(obj)
    if kind is functools.cached_property:  # before Python 3.12 it holds a lock
        return _cached_property, (obj.func, obj.attrname)
    if isinstance(obj, contextlib._GeneratorContextManager):
        # As a decorator it makes a new one for every call; the generator in it is for `with` alone.
        if inspect.getgeneratorstate(obj.gen) == inspect.GEN_CREATED:
            return kind, (obj.func, obj.args, obj.kwds)
        return NotImplemented
    if kind is memoryview and obj.contiguous:
        return _view, (bytearray(obj), obj.readonly, obj.format, obj.shape)
    return NotImplemented


# What a pickle calls on the other side. Their names are part of the format.


def _cached_property(function: Any, name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    if name is not None:
        made.__set_name__(None, name)
    return made


def _view(data: bytearray, readonly: bool, form: str, shape: Any) -> memoryview:
    view: Any = memoryview(data)
    view = view.cast("B").cast(form, shape) if view.nbytes else view
    return view.toreadonly() if readonly else view  # type: ignore[no-any-return]
