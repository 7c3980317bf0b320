"""The settings of libraries that ranks copy from the notebook: how each is read there and written here.

Each library has rows. Each row reads one setting from the library's module, and writes it to the module of
another process. None means the default, or a setting that this version lacks. No row imports a library, and
no row starts its devices: a rank has not chosen its devices yet.
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
    """Return the settings that differ from the library's defaults in this process, by the rows' names."""
    found = {}
    for row in LIBRARIES[library]:
        try:
            value = row.read(module)
        except AttributeError:
            continue  # another version, which lacks the setting
        except Exception as error:
            failed(row.name, error)
            continue
        if value is not None:
            found[row.name] = value
    return found


def write(
    library: str, module: Any, values: Mapping[str, Any], failed: Callable[[str, Exception], None]
) -> None:
    """Write the settings that `read` has found in another process.

    Settings with the right value stay unchanged.
    """
    for row in LIBRARIES[library]:
        if row.name not in values:
            continue
        try:
            if row.read(module) != values[row.name]:
                row.write(module, values[row.name])
        except Exception as error:  # another version of the library, or a machine without a required resource
            failed(row.name, error)
