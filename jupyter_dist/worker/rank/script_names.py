"""Names by which a Python file knows itself: `__file__`, and in a module of `python -m` also its package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any

__all__ = ["of"]


def of(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return these names of a payload's script or module. Empty for a notebook's cell.

    `file`: its path on the machine that has started the run. `module`: the module's full name.
    """
    file, module = header.get("file"), header.get("module")
    if file is None:
        return {}
    if module is None:
        return {"__file__": file}
    spec = ModuleSpec(module, SourceFileLoader(module, file), origin=file)
    spec.has_location = True
    return {"__file__": file, "__package__": spec.parent, "__spec__": spec, "__loader__": spec.loader}
