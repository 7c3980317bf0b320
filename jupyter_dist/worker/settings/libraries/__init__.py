"""The settings of libraries that a notebook's ranks take over: how each is read there and written here.

Each library has rows, and each row reads one setting from the library's module (None: as the library has it
by itself, or not known in this version) and writes it into the module of another process. No row imports a
library, and none makes one start its devices: a rank has yet to choose its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .numeric import ARRAYS
from .python import PYTHON
from .setting import Setting
from .tensorflow import TENSORFLOW
from .torch import TORCH

__all__ = ["LIBRARIES", "read", "write"]


LIBRARIES: dict[str, tuple[Setting, ...]] = {**PYTHON, **ARRAYS, **TORCH, **TENSORFLOW}
"""The name of a library's module → its settings, in the order in which they are written."""


def read(library: str, module: Any, failed: Callable[[str, Exception], None]) -> dict[str, Any]:
    """What differs in this process from what the library has by itself, by the rows' names."""
    found = {}
    for row in LIBRARIES[library]:
        try:
            value = row.read(module)
        except AttributeError:
            continue  # another version, which has no such setting
        except Exception as error:
            failed(row.name, error)
            continue
        if value is not None:
            found[row.name] = value
    return found


def write(
    library: str, module: Any, values: Mapping[str, Any], failed: Callable[[str, Exception], None]
) -> None:
    """Write what `read` has found elsewhere; leaves alone what is as wanted already."""
    for row in LIBRARIES[library]:
        if row.name not in values:
            continue
        try:
            if row.read(module) != values[row.name]:
                row.write(module, values[row.name])
        except Exception as error:  # another version of the library, or a machine without what it takes
            failed(row.name, error)
