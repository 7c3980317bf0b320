"""Hooks that run right after a library's module was imported, without importing the module.

A rank uses them to record metrics. The kernel uses them to record how trainers are made.
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
    """An entry of `sys.meta_path` that lets other finders find a module, and calls a hook after its loader.

    `hook` gets one of `names` and the module of that name, which was executed for the first time. Choose
    modules whose classes are then complete. An exception of the hook passes through the user's import.
    `install` calls the hook in the order of `names`.
    """

    def __init__(self, names: Collection[str], hook: Callable[[str, ModuleType], None]) -> None:
        self._names = names
        self._hook = hook

    def install(self, hook: Callable[[str, ModuleType], None] | None = None) -> None:
        """Insert this finder first, and call the hook now for modules that are already imported.

        `hook`: called now in place of the hook for imports.
        Raises the first exception of a hook, after all hooks were called.
        Repeatable.
        """
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        hook = self._hook if hook is None else hook
        raised = None
        for name in self._names:
            module = sys.modules.get(name)
            if module is not None:
                try:
                    hook(name, module)
                except Exception as error:  # the hooks of the other modules still run
                    raised = raised or error
        if raised is not None:
            raise raised

    def remove(self) -> None:
        """Stop calling the hook at imports."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec from the finders behind this one. Returns None for nearly all modules."""
        if fullname not in self._names:
            return None
        spec = self._find_behind(fullname, path, target)
        if spec is not None and spec.loader is not None:
            # The hook is set on the loader instead of a wrapper around it. Code that asks a module for its
            # loader (resources, inspect, pickles of source) then gets the loader that it expects. If a loader
            # accepts no attribute, only the hook is lost, not the import.
            with contextlib.suppress(AttributeError, TypeError):
                self._hook_loader(spec.loader, fullname)
        return spec

    def _find_behind(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        # Finders in front were asked before this one. A second AfterImport is asked like any other finder.
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
                # One loader can serve many modules, as for a zip file.
                return execute(module)
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            execute(module)
            # Some packages replace their own entry in sys.modules while they are executed.
            self._hook(fullname, sys.modules.get(fullname, module))
            return None

        loader.exec_module = exec_module


_waiting: dict[str, list[Callable[[], None]]] = {}


def call(name: str, function: Callable[[], None]) -> None:
    """Call `function` once: now if the module `name` is already imported, otherwise right after its import.

    The function must not raise: an exception would pass through the user's import.
    """
    if name in sys.modules and not _is_being_imported(sys.modules[name]):
        function()
        return
    if _finder not in sys.meta_path:
        _finder.install()
    _waiting.setdefault(name, []).append(function)


def _is_being_imported(module: ModuleType) -> bool:
    # The import system itself checks this attribute: importlib._bootstrap, `_find_and_load`.
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _call_all(name: str, _: ModuleType) -> None:
    for function in _waiting.pop(name, ()):
        function()


_finder = AfterImport(_waiting, _call_all)
