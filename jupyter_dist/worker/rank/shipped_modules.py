"""Import the modules that travelled with the cell as what they are: files of the user's.

Their code lies in the run's folder. What tells of it, such as a traceback, a warning, a profile or a crash,
names the file beside the notebook, where the user would look for it and may edit it, with the text that ran.
`__file__` is the copy, beside which the module's data lies.
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

__all__ = ["install"]


def install(folder: str, origins: Mapping[str, str]) -> None:
    """Have modules below `folder` imported so. `origins`: where a file comes from, by its path below it."""

    class Loader(SourceFileLoader):
        """Python's own, whose code says that it is from elsewhere."""

        def get_code(self, fullname: str) -> types.CodeType | None:
            code = super().get_code(fullname)
            path = self.get_filename(fullname)
            origin = origins.get(os.path.relpath(path, folder).replace(os.sep, "/"))
            if code is None or not origin:
                return code
            text = self.get_source(fullname) or ""
            # A size of None as mtime keeps linecache from looking for the file, which may have changed since.
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

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.pop(folder, None)


def _from(code: types.CodeType, file: str) -> types.CodeType:
    inner = [_from(const, file) if isinstance(const, types.CodeType) else const for const in code.co_consts]
    return code.replace(co_filename=file, co_consts=tuple(inner))
