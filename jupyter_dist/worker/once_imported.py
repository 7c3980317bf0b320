"""Have functions called as soon as a module is imported, which may be long ago; imports nothing itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

from .after_import import AfterImport

__all__ = ["call"]

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
