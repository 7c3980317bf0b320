"""What stands for modules and their namespaces in a pickle, and what the other process makes of it."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping
from typing import Any

from cloudpickle import cloudpickle as _cp

from .loading import current

__all__ = [
    "Shell",
    "Space",
    "attribute",
    "reduce_place",
    "same",
    "set_function",
    "space_of_main",
    "space_of_module",
    "space_of_shell",
    "updated",
]


class Space(dict[str, Any]):
    """Stands for the globals of functions in a pickle; never empty, or cloudpickle would fill it."""

    def __init__(self, name: str, reduced: Any, copied: bool = False) -> None:
        super().__init__(__name__=name)
        self.reduced = reduced
        """What finds or makes them in the other process."""
        self.copied = copied
        """Whether the names that a function uses travel as well, for a rank that has no such module."""


class Shell:
    """Stands for a module that travels by value, before it is filled."""

    def __init__(self, name: str, registered: bool) -> None:
        self.name = name
        self.registered = registered
        """Whether it can be imported by its name here, without being found by an import."""

    def __reduce__(self) -> Any:
        return _new_module, (self.name,)

    def filled(self, names: Mapping[str, Any]) -> Any:
        """How the module itself is reduced: the same one, whose functions may have been loaded before."""
        return same, (self,), (dict(names), self.registered), None, None, _fill_module


def space_of_main() -> Space:
    return Space("__main__", (_main, ()))


def space_of_module(name: str, copied: Mapping[str, Any] | None) -> Space:
    """`copied`: what a copy of the module's globals starts with, where a rank may have no such module."""
    return Space(name, (_globals_of, (name, None if copied is None else dict(copied))), copied is not None)


def space_of_shell(shell: Shell) -> Space:
    return Space(shell.name, (vars, (shell,)))


def reduce_place(module: str, path: str) -> Any:
    """Reduce an object to an import and the attributes to follow from there; none for a module itself."""
    return _at, (module, path)


# What a pickle calls on the other side. Their names are part of the format.


def _main() -> dict[str, Any]:
    return current().main


def _at(module: str, path: str) -> Any:
    found = importlib.import_module(module)
    return attribute(found, path) if path else found


def attribute(found: Any, path: str) -> Any:
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _globals_of(name: str, copy: dict[str, Any] | None) -> dict[str, Any]:
    """A module's own globals; `copy`, to be filled, where there is no such module and it may be missing."""
    try:
        return importlib.import_module(name).__dict__
    except ModuleNotFoundError as error:
        if copy is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return copy


def set_function(function: Any, state: Any) -> None:
    """Give a function its state, and leave the globals alone that are a module's own."""
    space = function.__globals__
    if getattr(sys.modules.get(space.get("__name__")), "__dict__", None) is space:
        state[1]["__globals__"] = {}
    _cp._function_setstate(function, state)


def _new_module(name: str) -> types.ModuleType:
    return types.ModuleType(name)


def same(obj: Any) -> Any:
    return obj


def updated(obj: Any, state: Mapping[str, Any]) -> None:
    """Give an object of a module the attributes that it has in the notebook."""
    vars(obj).update(state)


def _fill_module(module: types.ModuleType, state: tuple[dict[str, Any], bool]) -> None:
    names, registered = state
    vars(module).update(names)
    if registered:
        sys.modules.setdefault(module.__name__, module)
