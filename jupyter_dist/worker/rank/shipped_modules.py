"""Import of the modules that were copied with the cell, as files of the user's.

Their code is in the run's folder. Tracebacks, warnings, profiles and crash reports name the original file
beside the notebook, with the text that ran. The user would look for that file and may edit it. `__file__` is
the copy; the module's data is beside the copy.
"""

from __future__ import annotations

import linecache
import os
import sys
import types
from collections.abc import Mapping
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from typing import Any

__all__ = ["install", "remove"]

_hooks: dict[str, Any] = {}
"""The hooks by their folders."""


def install(folder: str, origins: Mapping[str, str]) -> None:
    """Install the import of modules below `folder`. `origins` maps a path below it to the original file."""

    class Loader(SourceFileLoader):
        """Python's own loader, whose code objects name the original file."""

        def get_code(self, fullname: str) -> types.CodeType | None:
            code = super().get_code(fullname)
            path = self.get_filename(fullname)
            origin = origins.get(os.path.relpath(path, folder).replace(os.sep, "/"))
            if code is None or not origin:
                return code
            text = self.get_source(fullname) or ""
            # A size of None as mtime prevents linecache from reading the file, which may have changed since.
            linecache.cache[origin] = (len(text), None, text.splitlines(True), origin)
            return _from(code, origin)

    make = FileFinder.path_hook(
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (Loader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )

    def hook(path: str) -> Any:
        if path != folder and not path.startswith(folder + os.sep):
            raise ImportError("not the run's", path=path)
        return make(path)

    _hooks[folder] = hook
    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.pop(folder, None)


def remove(folder: str) -> None:
    """Stop the import of modules below `folder`. Imported modules stay."""
    sys.path[:] = [path for path in sys.path if path != folder]
    hook = _hooks.pop(folder, None)
    if hook in sys.path_hooks:
        sys.path_hooks.remove(hook)
    sys.path_importer_cache.pop(folder, None)


def _from(code: types.CodeType, file: str) -> types.CodeType:
    inner = [_from(const, file) if isinstance(const, types.CodeType) else const for const in code.co_consts]
    return code.replace(co_filename=file, co_consts=tuple(inner))
