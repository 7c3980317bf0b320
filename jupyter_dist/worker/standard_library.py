"""The names of the standard library's modules, on every Python of a rank."""

from __future__ import annotations

import functools
import os
import sys

__all__ = ["module_names"]


@functools.cache
def module_names() -> frozenset[str]:
    """Return the top-level modules of the standard library, as `sys.stdlib_module_names` does.

    Python 3.9 has no such list. There, the result is what the folders of the library contain. As in the list,
    Python's own tests are left out: `test` may be a module of the user.
    """
    names: frozenset[str] | None = getattr(sys, "stdlib_module_names", None)
    if names is not None:
        return names
    import pkgutil

    library = os.path.dirname(os.__file__)
    found = pkgutil.iter_modules([library, os.path.join(library, "lib-dynload")])
    names = frozenset(sys.builtin_module_names).union(module.name for module in found)
    return names - {"sitecustomize", "test"}
