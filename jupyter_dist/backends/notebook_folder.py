"""Folder of the notebook for which a backend is asked.

A kernel runs in that folder, and a Jupyter server does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

__all__ = ["asked_in", "notebook_folder"]

_asked_in: ContextVar[Path | None] = ContextVar("asked_in", default=None)


def notebook_folder() -> Path:
    """Return the notebook's folder. Without `asked_in`, this is the working directory."""
    return _asked_in.get() or Path.cwd()


@contextlib.contextmanager
def asked_in(folder: Path | None) -> Iterator[None]:
    """Set the notebook's folder for this thread. None means the working directory."""
    before = _asked_in.set(folder)
    try:
        yield
    finally:
        _asked_in.reset(before)
