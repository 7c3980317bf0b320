"""A note on the libraries of which a rank and the notebook have different versions."""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ["note"]

_noted: set[str] = set()
"""Differences that this process has noted. A session's rank runs many cells."""


def note(notebook: Mapping[str, str]) -> str | None:
    """Return the note, or None if no library differs that no note has named. Imports nothing.

    `notebook`: the versions of the notebook's libraries. Of those, the note compares the ones that this
    process has imported. A build such as `+cpu` is no part of a version.
    """
    differing = []
    for name, there in sorted(notebook.items()):
        here = getattr(sys.modules.get(name), "__dict__", {}).get("__version__")
        if isinstance(here, str) and here.partition("+")[0] != there.partition("+")[0]:
            differing.append(f"{name} {here} (notebook: {there})")
    differing = [one for one in differing if one not in _noted]
    _noted.update(differing)
    if not differing:
        return None
    return f"Ranks have other versions of libraries than the notebook: {', '.join(differing)}."
