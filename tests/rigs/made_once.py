"""What tests need and a machine makes only once: a folder under ~/.cache/jupyter-dist."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

__all__ = ["cache", "made_once", "place"]


def cache() -> Path:
    """Where such folders are, and what their making keeps."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jupyter-dist"


def place(name: str, made_of: str) -> Path:
    """Where the folder is, or will be: another one as soon as it is made of something else."""
    return cache() / name / hashlib.sha256(made_of.encode()).hexdigest()[:16]


def made_once(name: str, made_of: str, make: Callable[[Path], None]) -> Path:
    """The folder, which `make` fills where it is not there yet. What `make` raises passes through, and the
    next caller tries anew; whoever calls meanwhile, in another process as well, waits."""
    folder = place(name, made_of)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = Path(f"{folder}.part")
            shutil.rmtree(part, ignore_errors=True)
            make(part)
            part.rename(folder)
    return folder
