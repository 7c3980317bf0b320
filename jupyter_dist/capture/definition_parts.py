"""The parts of a function or class, to detect whether it has changed since its last pickle."""

from __future__ import annotations

import abc
import enum
import functools
import operator
import sys
import types
from collections.abc import Iterable
from typing import Any

from ..worker.pickling import annotation_values

__all__ = ["parts", "same"]

_MOST = 2000
_PLAIN = {bool, int, float, complex, str, bytes, type(None), type(Ellipsis), types.CodeType, types.ModuleType}
_PLAIN |= {types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType}
_PLAIN |= {types.MemberDescriptorType, types.GetSetDescriptorType, types.ClassMethodDescriptorType}
_CONTAINERS = {list, tuple, set, frozenset}
_PLAIN |= {type(value) for value in vars(abc.ABC).values()} - _CONTAINERS  # what abc keeps in its classes
_LRU_CACHE = type(functools.lru_cache(len))


class _Unsure(Exception):
    """A part could change without a trace."""


def parts(value: Any) -> list[Any] | None:
    """Return all objects of which a function or class consists, in a fixed order.

    Return None if a change of a part could not be seen, or for more than 2000 parts.
    """
    found: list[Any] = []
    try:
        _walk(value, found, set())
    except Exception:  # parts of the user's can raise anything, and `_Unsure` is raised here
        return None
    return found


def same(before: list[Any] | None, now: list[Any] | None) -> bool:
    """Return whether two lists have the same objects."""
    return bool(before and now and len(before) == len(now) and all(map(operator.is_, before, now)))


def _walk(value: Any, found: list[Any], seen: set[int]) -> None:
    found.append(value)
    if len(found) > _MOST:
        raise _Unsure
    kind = type(value)
    if kind in _PLAIN or id(value) in seen:
        return
    seen.add(id(value))
    for part in _inside(value, kind):
        _walk(part, found, seen)


def _inside(value: Any, kind: type) -> Iterable[Any]:
    if kind is types.FunctionType:
        return () if _is_of_module(value) else _in_function(value)
    if issubclass(kind, type):
        return () if _is_of_module(value) else _in_class(value, kind)
    if kind in _CONTAINERS:
        return list(value)
    if kind is dict or kind is types.MappingProxyType:
        return _items(value)
    if kind is property:
        return value.fget, value.fset, value.fdel
    if kind is classmethod or kind is staticmethod:
        return (value.__func__,)
    if kind is _LRU_CACHE:
        return (value.__wrapped__,)
    if kind is functools.partial:
        return value.func, value.args, value.keywords
    if kind.__module__ in ("typing", "types"):
        return ()
    if issubclass(kind, enum.Enum) or kind.__module__ == "dataclasses":
        slots = [getattr(value, name) for name in kind.__dict__.get("__slots__", ()) if hasattr(value, name)]
        return *slots, *_items(getattr(value, "__dict__", {}))
    raise _Unsure


def _in_function(function: types.FunctionType) -> Iterable[Any]:
    yield function.__code__
    yield function.__defaults__
    yield function.__kwdefaults__
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the variable has no value yet
            yield cell
    yield from _items(vars(function))
    yield from annotation_values.values(function).values()


def _in_class(cls: Any, kind: type) -> Iterable[Any]:
    if sys.version_info >= (3, 14):
        # The first access adds entries to the class, and a pickle accesses the annotations.
        annotation_values.values(cls)
    return kind, *cls.__bases__, *_items(vars(cls))


def _items(mapping: Any) -> list[Any]:
    return [part for item in list(mapping.items()) for part in item]


def _is_of_module(value: Any) -> bool:
    """Return whether an imported module has a function or class under its name."""
    module = sys.modules.get(value.__module__) if value.__module__ != "__main__" else None
    return getattr(module, value.__qualname__, None) is value
