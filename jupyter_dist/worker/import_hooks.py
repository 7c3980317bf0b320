"""Run something of ours right after a library's module was imported, without importing it ourselves.

A rank does so to pick up metrics, the kernel to note how trainers are made.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
from collections.abc import Callable, Collection, Sequence
from types import ModuleType
from typing import Any

__all__ = ["AfterImport", "call"]


class AfterImport:
    """An entry of `sys.meta_path` that lets the others find, and runs a hook after the loader's work.

    `hook` gets the name of one of `names` and its module, which was executed for the first time: each
    must be one whose classes are then complete. What the hook raises passes through the user's import.
    """

    def __init__(self, names: Collection[str], hook: Callable[[str, ModuleType], None]) -> None:
        self._names = names
        self._hook = hook

    def install(self) -> None:
        """Go in front, and take those modules now that are imported already. Repeatable.

        Raises what the first hook has raised, after all hooks were called.
        """
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        raised = None
        for name in self._names:
            module = sys.modules.get(name)
            if module is not None:
                try:
                    self._hook(name, module)
                except Exception as error:  # the other modules get their hooks all the same
                    raised = raised or error
        if raised is not None:
            raise raised

    def remove(self) -> None:
        """See no further imports."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the finders behind this one have; None for nearly all modules."""
        if fullname not in self._names:
            return None
        spec = self._find_behind(fullname, path, target)
        if spec is not None and spec.loader is not None:
            # On the loader instead of around it: code that asks a module for its loader
            # (resources, inspect, pickles of source) gets what it knows. A loader that takes no
            # attribute costs what we do after the import, not the import.
            with contextlib.suppress(AttributeError, TypeError):
                self._hook_loader(spec.loader, fullname)
        return spec

    def _find_behind(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        # Those in front had their turn before us; a second one of our kind is asked like any other.
        finders = list(sys.meta_path)
        for finder in finders[finders.index(self) + 1 :] if self in finders else finders:
            find = getattr(finder, "find_spec", None)
            if find is None:
                continue
            spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def _hook_loader(self, loader: Any, fullname: str) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> Any:
            if module.__name__ != fullname:
                # One loader for many modules, as for a zip file.
                return execute(module)
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            execute(module)
            # Some packages put something else in their place while they are executed.
            self._hook(fullname, sys.modules.get(fullname, module))
            return None

        loader.exec_module = exec_module


_waiting: dict[str, list[Callable[[], None]]] = {}


def call(name: str, function: Callable[[], None]) -> None:
    """Call `function` once: now, where the module `name` is imported already, else right after its import.

    The function must not raise: what it raises would be the import's.
    """
    if name in sys.modules and not _is_being_imported(sys.modules[name]):
        function()
        return
    if _finder not in sys.meta_path:
        _finder.install()
    _waiting.setdefault(name, []).append(function)


def _is_being_imported(module: ModuleType) -> bool:
    # What the import system itself goes by: importlib._bootstrap, `_find_and_load`.
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _call_all(name: str, _: ModuleType) -> None:
    for function in _waiting.pop(name, ()):
        function()


_finder = AfterImport(_waiting, _call_all)
