"""The session to which plain cells of this notebook go."""

from __future__ import annotations

import re

from ..record.sessions import find_session
from ..worker.session import place

__all__ = ["get", "names", "set"]

_FLAG = re.compile(r"--session(?:[= ]([\w.-]+))?")

_name: str | None = None


def get() -> str | None:
    """Return the name of the session; None if each plain cell starts ranks of its own."""
    return _name


def set(name: str | None) -> None:
    """Choose the session for plain cells from now on."""
    global _name
    _name = name


def names(cell: str, typed: str) -> list[str]:
    """Return the names on rank 0 that begin with `typed`, for a cell that goes to a session."""
    line = cell.partition("\n")[0]
    if not typed.isidentifier() or not line.startswith(("%%distribute", "%distribute")):
        return []
    flag = _FLAG.search(line)
    name = _name if flag is None else flag[1] or place.DEFAULT
    if name is None or not place.is_name(name):
        return []
    found = find_session(name)
    return [] if found is None else sorted(one for one in found.about["names"] if one.startswith(typed))
