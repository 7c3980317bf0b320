"""Modules beside the notebook whose file has changed since a session's rank imported them."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

__all__ = ["ShippedVersions"]


class ShippedVersions:
    """The folders of modules that the cells of a session have sent to this rank."""

    def __init__(self) -> None:
        self._folders: set[str] = set()
        self._noted: dict[str, bytes] = {}

    def note(self, folder: str) -> str | None:
        """Add a cell's folder. Return a note on its modules of which this rank uses an earlier version.

        A version is noted once.
        """
        changed = []
        paths = sorted(Path(folder).rglob("*.py"))
        for path in paths:
            relative = str(path.relative_to(folder))
            name = relative.removesuffix(".py").replace(os.sep, ".").removesuffix(".__init__")
            file = getattr(sys.modules.get(name), "__file__", None)
            if not isinstance(file, str) or file.removesuffix(os.sep + relative) not in self._folders:
                continue
            try:
                present, imported = path.read_bytes(), Path(file).read_bytes()
            except OSError:  # a user has removed the earlier run
                continue
            if present != imported and self._noted.get(name) != present:
                self._noted[name] = present
                changed.append(name)
        if paths:
            self._folders.add(folder)
        return _told(changed) if changed else None

    def present(self, value: Any) -> Any:
        """Return a function or class of these modules as its module has it now; None for another value."""
        if type(value) is not types.FunctionType and not issubclass(type(value), type):
            return None
        module = sys.modules.get(value.__module__)
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not any(file.startswith(path + os.sep) for path in self._folders):
            return None
        return getattr(module, value.__qualname__, None)


def _told(changed: list[str]) -> str:
    names = ", ".join(changed)
    # The path of a package leads to its earlier folder until the package is loaded again.
    parts = [name.split(".") for name in changed]
    all_names = dict.fromkeys(".".join(part[: i + 1]) for part in parts for i in range(len(part)))
    lines = "; ".join(f"importlib.reload({name})" for name in all_names)
    have, them = ("has", "it") if len(changed) == 1 else ("have", "them")
    return (
        f"{names} {have} changed since the ranks imported {them}. The ranks use the earlier version. To use "
        "the new one, run this in a cell of the session: "
        f"import importlib, {', '.join(all_names)}; {lines}"
    )
