"""Names of the standard library that not every version of Python has."""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any

from ..standard_library import module_names

__all__ = ["Absent", "found", "is_of_python", "reduce_dispatch_method", "reduce_method"]

_RENAMED = {("_thread", "lock"): "allocate_lock"}
_SINCE: dict[tuple[str, str], dict[str, Any]] = {("queue", "Queue"): {"is_shutdown": False}}
"""Attributes that objects of newer versions have, with their first values."""
_NEW_PACKAGES = {"annotationlib", "compression", "tomllib"}
"""Packages that the standard library has got after Python 3.10."""


def _slots_of(obj: Any) -> list[Any]:
    return [getattr(obj, field.name) for field in dataclasses.fields(obj)]


def _set_slots(obj: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(obj), state):
        object.__setattr__(obj, field.name, value)


_BEFORE_310 = {
    ("dataclasses", "_dataclass_getstate"): _slots_of,
    ("dataclasses", "_dataclass_setstate"): _set_slots,
}
"""Methods of dataclasses that are frozen and have slots, for Python 3.9."""


class Absent(type):
    """A function or class that this Python lacks. Only its use raises an error."""

    _place: str

    def __new__(cls, module: str, name: Any, *_: object, **__: object) -> Any:
        if type(name) is tuple:  # a class with an absent base
            raise name[0]._error()
        made = super().__new__(cls, name, (), {"__new__": _refuse})
        made._place = f"{module}.{name}"
        return made

    def __init__(cls, *_: object, **__: object) -> None:
        pass

    def __call__(cls, *_: object, **__: object) -> Any:
        raise cls._error()

    def _error(cls) -> RuntimeError:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return RuntimeError(f"The notebook uses {cls._place}, which Python {version} does not have.")


def _refuse(cls: Any, *_: object, **__: object) -> Any:
    raise cls._error()


def is_of_python(module: str) -> bool:
    """Return whether a module belongs to the standard library of some version of Python."""
    package = module.partition(".")[0]
    return package in module_names() or package in _NEW_PACKAGES


def found(module: str, name: str, find: Any) -> Any:
    """Return a name for a pickle that another version of Python has written. `find` finds it here."""
    try:
        value = find(module, _RENAMED.get((module, name), name))
    except (AttributeError, ModuleNotFoundError):
        if not is_of_python(module):
            raise
        try:
            value = find(module.partition(".")[0], name)  # pathlib has a submodule in some versions
        except (AttributeError, ModuleNotFoundError):
            return _BEFORE_310.get((module, name)) or Absent(module, name)
    for attribute, first in _SINCE.get((module, name), {}).items():
        if not hasattr(value, attribute):
            setattr(value, attribute, first)
    return value


def reduce_method(method: Any) -> Any:
    """Reduce a method of an object of the standard library. Other versions may lack it."""
    owner, name = method.__self__, method.__name__
    if isinstance(owner, type) or not is_of_python(type(owner).__module__):
        return NotImplemented
    return _method, (owner, name)


def reduce_dispatch_method(method: Any) -> Any:
    """Reduce a `singledispatchmethod`, which since Python 3.13 has a cache with weak references."""
    return _dispatch_method, (method.func, method.dispatcher)


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _method(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        return Absent(type(owner).__module__, f"{type(owner).__qualname__}.{name}")


def _dispatch_method(function: Any, dispatcher: Any) -> Any:
    made: Any = functools.singledispatchmethod(function)
    made.dispatcher = dispatcher
    return made
