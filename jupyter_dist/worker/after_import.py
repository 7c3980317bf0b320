"""Have something done right after a module's import, and import nothing for it."""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

__all__ = ["call"]

_waiting: dict[str, list[Callable[[], None]]] = {}
_here = threading.local()


def call(name: str, function: Callable[[], None]) -> None:
    """Call `function` once: now, where the module `name` is imported already, else right after its import.

    The function must not raise: what it raises would be the import's.
    """
    if name in sys.modules and not _is_being_imported(sys.modules[name]):
        function()
        return
    _waiting.setdefault(name, []).append(function)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _is_being_imported(module: ModuleType) -> bool:
    # What the import system itself goes by: importlib._bootstrap, `_find_and_load`.
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Finder:
    """Lets the other finders find a module that is waited for, and wraps what its loader does."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        looking: set[str] = _here.__dict__.setdefault("looking", set())
        if fullname not in _waiting or fullname in looking:
            return None  # another finder that asks all the others, as this one does, has asked us
        looking.add(fullname)
        try:
            spec = _find_elsewhere(fullname, path, target)
        finally:
            looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            # On the loader instead of around it: code that asks a module for its loader gets what it knows.
            with contextlib.suppress(AttributeError, TypeError):
                _wrap(spec.loader, fullname)
        return spec


def _find_elsewhere(
    fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> importlib.machinery.ModuleSpec | None:
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        if isinstance(finder, _Finder) or find is None:
            continue
        spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target)
        if spec is not None:
            return spec
    return None


def _wrap(loader: object, fullname: str) -> None:
    execute = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: ModuleType) -> None:
        execute(module)
        if module.__name__ != fullname:
            return  # one loader for many modules, as for a zip file
        with contextlib.suppress(AttributeError):
            del loader.exec_module  # type: ignore[attr-defined]
        for function in _waiting.pop(fullname, ()):
            function()

    loader.exec_module = exec_module  # type: ignore[attr-defined]
