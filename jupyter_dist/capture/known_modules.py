"""Modules that a rank surely has: those of Python and of the user, and those that its cell uses."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Collection

__all__ = ["KnownModules"]

_EVERYWHERE = ("__main__", "cloudpickle", "jupyter_dist")


class KnownModules:
    """The modules that the ranks of one cell surely have.

    `used` are the top-level modules that the cell uses. If all ranks run `here`, on this machine, the modules
    count as well that those use in turn. `is_own` returns whether a top-level module is the user's.
    """

    def __init__(self, used: Collection[str], here: bool, is_own: Callable[[str], bool]) -> None:
        self._used, self._here, self._is_own = used, here, is_own
        self._found = dict.fromkeys((*sys.stdlib_module_names, *_EVERYWHERE), True)

    def has(self, module: str) -> bool:
        """Return whether a rank has the module with this name."""
        top = module.partition(".")[0]
        if top not in self._found:
            there = top in self._used or (self._here and _is_used(top, self._used))
            self._found[top] = there or self._is_own(top)
        return self._found[top]


def _is_used(library: str, used: Collection[str]) -> bool:
    """Return whether one of these top-level modules is a library, or uses it as its own code shows."""
    seen, queue = set(used), list({*used} - {"jupyter_dist"})
    while queue and library not in seen:
        for name in _used_by(queue.pop(), len(sys.modules)) - seen:
            seen.add(name)
            queue.append(name)
    return library in seen


@functools.lru_cache(1000)
def _used_by(top: str, _imported: int) -> set[str]:
    """Return the top-level modules whose modules, classes and functions a library's modules have.

    The number of imported modules changes when there is more to find.
    """
    found = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != top or type(module) is not types.ModuleType:
            continue
        for value in list(vars(module).values()):
            # isinstance would read `__class__`, for which some objects run code.
            if issubclass(type(value), types.ModuleType):
                found.add(value.__name__.partition(".")[0])
            elif issubclass(type(value), type | types.FunctionType):
                found.add(str(value.__module__).partition(".")[0])
    return found - {*sys.stdlib_module_names, "__main__"}
