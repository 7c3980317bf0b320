"""A row of settings: one setting, how the notebook's is read and how a rank's is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["Setting", "at", "attribute", "differing", "pair"]


class Setting(NamedTuple):
    """One row. `read` returns builtins, or objects of the notebook such as a formatter."""

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], object]


def at(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def attribute(path: str, usual: Any) -> Setting:
    """Return a setting that is an attribute, read and set by its path below the module."""
    owner, _, name = path.rpartition(".")

    def read(module: Any) -> Any:
        value = at(module, path)
        return None if value == usual else value

    def write(module: Any, value: Any) -> None:
        setattr(at(module, owner) if owner else module, name, value)

    return Setting(path, read, write)


def pair(getter: str, setter: str, usual: Any) -> Setting:
    """Return a setting with one function that reads it and one that sets it."""

    def read(module: Any) -> Any:
        value = at(module, getter)()
        return None if value == usual else value

    def write(module: Any, value: Any) -> None:
        at(module, setter)(value)

    return Setting(setter, read, write)


def differing(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the entries that differ from the defaults.

    An unknown key counts as default if its value is empty.
    """
    return {k: v for k, v in values.items() if v != usual.get(k) and (k in usual or v)} or None
