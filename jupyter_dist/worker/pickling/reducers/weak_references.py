"""Weak references. On a rank they refer to the rank's own object, which lives as long as in the notebook."""

from __future__ import annotations

import weakref
from typing import Any

from ..unpickling import hold
from . import Note

__all__ = ["reduce"]


def reduce(obj: Any, note: Note) -> Any:
    kind = type(obj)
    if kind is weakref.WeakKeyDictionary or kind is weakref.WeakValueDictionary:
        return _mapping, (kind,), dict(obj), None, None, _fill_mapping
    if kind is weakref.WeakSet:
        return _set, (), list(obj), None, None, _fill_set
    if kind is weakref.WeakMethod:
        method = obj()
        return (_dead, ()) if method is None else (_method, (method,))
    if kind is weakref.ref:
        referent = obj()
        return (_dead, ()) if referent is None else (_reference, (referent, obj.__callback__))
    if kind is weakref.ProxyType or kind is weakref.CallableProxyType:
        return _proxy, (obj.__repr__.__self__,)
    return NotImplemented


# A pickle calls these functions when it is loaded. Their names are part of the format.


class _Gone:
    pass


def _dead() -> Any:
    return weakref.ref(_Gone())


def _reference(referent: Any, callback: Any) -> Any:
    hold([referent])
    return weakref.ref(referent, callback)


def _method(method: Any) -> Any:
    hold([method.__self__])
    return weakref.WeakMethod(method)


def _proxy(referent: Any) -> Any:
    hold([referent])
    return weakref.proxy(referent)


def _mapping(kind: Any) -> Any:
    return kind()


def _fill_mapping(mapping: Any, items: dict[Any, Any]) -> None:
    hold(items if isinstance(mapping, weakref.WeakKeyDictionary) else items.values())
    mapping.update(items)


def _set() -> Any:
    return weakref.WeakSet()


def _fill_set(made: Any, items: list[Any]) -> None:
    hold(items)
    made.update(items)
