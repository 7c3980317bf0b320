"""Placeholders for modules and their namespaces in a pickle, and the functions that load them."""

from __future__ import annotations

import collections
import copy
import importlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from . import annotation_values, other_pythons
from .reducers.torch_compile import copied_marks
from .unpickling import current, is_foreign

__all__ = [
    "Cell",
    "Placed",
    "Shell",
    "Space",
    "attribute",
    "function_state",
    "reduce_place",
    "same",
    "set_function",
    "space_of_main",
    "space_of_module",
    "space_of_shell",
    "updated",
]


class Space(dict[str, Any]):
    """The placeholder for globals of functions in a pickle.

    It is never empty, or cloudpickle would fill it.
    """

    def __init__(self, name: str, reduced: Any, *, of_module: bool = False, copied: bool = False) -> None:
        super().__init__(__name__=name)
        self.reduced = reduced
        """The reduced value that finds or makes the globals in the other process."""
        self.of_module = of_module
        """Whether the globals belong to a module that the other process imports."""
        self.copied = copied
        """Whether the names that a function uses are sent as well, for a rank that lacks the module."""


class Shell:
    """The placeholder for a module that is pickled by value, before it is filled."""

    def __init__(self, name: str, registered: bool) -> None:
        self.name = name
        self.registered = registered
        """Whether the module is in sys.modules under its name, although an import would not find it."""

    def __reduce__(self) -> Any:
        return _new_module, (self.name,)

    def filled(self, names: Mapping[str, Any]) -> Any:
        """Return how the module itself is reduced.

        Functions of the same module may have been loaded before.
        """
        return same, (self,), (dict(names), self.registered), None, None, _fill_module


class Placed:
    """The placeholder for a container of a user's module. Loading refills that module's own container."""

    def __init__(self, module: str, name: str, value: Any, named: Callable[[str], None]) -> None:
        self._place = module, name
        self._value = value
        self._named = named

    def __reduce__(self) -> Any:
        self._named(self._place[0])
        return _at, self._place, copy.copy(self._value), None, None, _refill


class Cell:
    """The placeholder for a variable that functions share, before it is filled."""

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell

    def contents(self) -> list[Any]:
        """Return the value of the variable in a list, or an empty list if it has none yet."""
        try:
            return [self._cell.cell_contents]
        except ValueError:
            return []

    def filled(self) -> Any:
        """Return how the cell itself is reduced."""
        return same, (self,), self.contents(), None, None, _fill_cell


def function_state(
    function: Any, used: dict[str, Any], cells: tuple[Cell, ...] | None, reached: list[types.ModuleType]
) -> Any:
    """Return the state of a function, without its code.

    `used`: the globals that are sent with the function. `reached`: modules that the rank only has to import.
    """
    attributes = {name: getattr(function, name) for name in _OF_A_FUNCTION}
    attributes |= annotation_values.of_function(function)
    own = {name: value for name, value in vars(function).items() if name not in copied_marks(function)}
    return own, attributes, used, [(cell, cell.contents()) for cell in cells or ()], reached


_OF_A_FUNCTION = ["__name__", "__qualname__", "__kwdefaults__", "__defaults__", "__module__", "__doc__"]


def space_of_main() -> Space:
    return Space("__main__", (_main, ()))


def space_of_module(name: str, copied: Mapping[str, Any] | None) -> Space:
    """Return the placeholder for a module's globals.

    `copied`: the first names of a copy, for a rank that may lack the module.
    """
    reduced = _globals_of, (name, None if copied is None else dict(copied))
    return Space(name, reduced, of_module=True, copied=copied is not None)


def space_of_shell(shell: Shell) -> Space:
    return Space(shell.name, (vars, (shell,)))


def reduce_place(module: str, path: str) -> Any:
    """Reduce an object to an import and the attributes to follow from it. A module needs no attributes."""
    return _at, (module, path)


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _main() -> dict[str, Any]:
    return current().main


def _at(module: str, path: str) -> Any:
    try:
        found = importlib.import_module(module)
        return attribute(found, path) if path else found
    except (AttributeError, ModuleNotFoundError):
        if is_foreign() and other_pythons.is_of_python(module):
            return other_pythons.Absent(module, path)
        raise


def attribute(found: Any, path: str) -> Any:
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _globals_of(name: str, copy: dict[str, Any] | None) -> dict[str, Any]:
    """Return a module's own globals.

    If the module is missing and `copy` is not None, return `copy`, which is filled later.
    """
    try:
        return importlib.import_module(name).__dict__
    except ModuleNotFoundError as error:
        # Otherwise the module is there, and lacks a module that it imports.
        is_missing = f"{name}.".startswith(f"{error.name}.")
        is_submodule = is_missing and error.name != name.partition(".")[0]
        if copy is None and is_foreign() and (is_submodule or other_pythons.is_of_python(name)):
            return {"__name__": name}  # its functions have no code here either
        if copy is None or not is_missing:
            raise
        return copy


def set_function(function: Any, state: tuple[Any, ...]) -> None:
    """Set a function's state. Globals that belong to a module stay unchanged."""
    own, attributes, used, cells, _ = state
    vars(function).update(own)
    space = function.__globals__
    theirs = getattr(sys.modules.get(space.get("__name__")), "__dict__", None) is space
    if used and (not theirs or space is current().main):
        space.update(used)
    for cell, contents in cells:
        _fill_cell(cell, contents)
    for name, value in attributes.items():
        setattr(function, name, value)


def _fill_cell(cell: types.CellType, contents: list[Any]) -> None:
    for value in contents:
        cell.cell_contents = value


def _new_module(name: str) -> types.ModuleType:
    return types.ModuleType(name)


def same(obj: Any) -> Any:
    return obj


def updated(obj: Any, state: Mapping[str, Any]) -> None:
    """Set the attributes that an object of a module has in the notebook."""
    vars(obj).update(state)


def _refill(container: Any, value: Any) -> None:
    if isinstance(container, (list, bytearray)):
        container[:] = value
    else:
        container.clear()
        (container.extend if isinstance(container, collections.deque) else container.update)(value)


def _fill_module(module: types.ModuleType, state: tuple[dict[str, Any], bool]) -> None:
    names, registered = state
    vars(module).update(names)
    if registered:
        sys.modules.setdefault(module.__name__, module)
