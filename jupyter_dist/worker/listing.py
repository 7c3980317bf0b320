"""Names and sizes of files. A file or folder that cannot be read counts as empty."""

from __future__ import annotations

import os

__all__ = ["names", "numbers", "size"]


def names(place: str | os.PathLike[str]) -> list[str]:
    """Return the names in a folder; none if the folder cannot be read."""
    try:
        return os.listdir(place)
    except OSError:
        return []


def numbers(place: str | os.PathLike[str]) -> list[int]:
    """Return the names in a folder that are numbers, such as those of attempts, ranks or processes."""
    return sorted(int(name) for name in names(place) if name.isdigit())


def size(path: str | os.PathLike[str]) -> int:
    """Return the size of a file in bytes; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
