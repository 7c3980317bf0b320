"""Further files of a run besides those of its ranks: launcher logs, and files that the user may download."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError
from ..folder import RunFolder
from ..worker import listing
from ..worker.layout import launcher_of

__all__ = ["downloadable", "launcher_log", "launchers", "read"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
"""Names of files for download. They need no quoting in a header, on any system."""
_MAX_FILES = 100
_CHUNK = 1 << 20


def launchers(folder: RunFolder, attempt: int) -> list[str]:
    """Return the launchers that wrote a log in that attempt: `launcher`, or `launcher-HOST` for each host."""
    return sorted(filter(None, map(launcher_of, listing.names(folder.attempt(attempt)))))


def launcher_log(folder: RunFolder, attempt: int, name: str) -> Path:
    """Return the path of one launcher's log. Raises InputError for a name that is not among `launchers`."""
    known = launchers(folder, attempt)
    if name not in known:
        there = f"it has {', '.join(known)}" if known else "its backend starts the ranks without one"
        raise InputError(f"run {folder.id} has no launcher {name[:80]!r}; {there}")
    return folder.attempt(attempt) / f"{name}.log"


def downloadable(folder: RunFolder) -> list[tuple[str, int]]:
    """Return name and size in bytes of each file for download. Links and unusual names are left out."""
    found = []
    try:
        with os.scandir(folder.files) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    found.append((entry.name, entry.stat(follow_symlinks=False).st_size))
    except OSError:
        pass  # there are no files yet, or the run is being removed
    return sorted(found)[:_MAX_FILES]


def read(folder: RunFolder, name: str) -> Iterator[bytes]:
    """Yield one of those files as it is now, in pieces. Raises InputError for any other name."""
    known = [offered for offered, _ in downloadable(folder)]
    if name not in known:
        there = f"it has {', '.join(known[:10])}" if known else "it has none"
        raise InputError(f"run {folder.id} has no file {name[:80]!r} to download; {there}")
    try:
        # The program that writes here is not trusted: it may replace the file by a link to another one.
        fd = os.open(folder.files / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{name} of run {folder.id} cannot be read: {error.strerror}") from None
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise InputError(f"{name} of run {folder.id} is no file any more")
    return _pieces(fd, info.st_size)


def _pieces(fd: int, left: int) -> Iterator[bytes]:
    with os.fdopen(fd, "rb") as file:
        while left and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            yield chunk
