"""The file of a rank's stacks: faulthandler appends to it when somebody asks for the stacks."""

from __future__ import annotations

import contextlib
import faulthandler
import os
from pathlib import Path

from . import layout, stack_probe

__all__ = ["end", "open_in", "size", "write_spared"]

_fd: int | None = None
_ended = 0
"""The length of the mark in the rank's stacks."""


def open_in(rank_folder: Path, signum: int) -> None:
    """Write the stacks to this folder from now on, whenever this process gets the signal."""
    global _fd, _ended
    before, _fd = (
        _fd,
        os.open(rank_folder / layout.STACKS, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600),
    )
    _ended = 0
    faulthandler.register(signum, file=_fd, all_threads=True)
    if before is not None:
        os.close(before)


def size() -> int:
    """Return the size of this rank's `stacks.txt` in bytes. It grows when somebody asks for the stacks."""
    return 0 if _fd is None else os.fstat(_fd).st_size - _ended


def write_spared() -> None:
    """Write this rank's stacks if a request has spared it the signal, because it sleeps in C code.

    Another thread than the sleeping one calls this. It needs the GIL, which such a sleep usually releases.
    """
    if _fd is None:
        return
    note = stack_probe.NOTE.encode()
    size = os.fstat(_fd).st_size
    if os.pread(_fd, len(note), max(0, size - len(note))) == note:
        faulthandler.dump_traceback(_fd, all_threads=True)


def end() -> None:
    """Mark the end of the stacks that show where the cell was. A request can come later."""
    global _ended
    with contextlib.suppress(OSError):
        if _fd is not None and not _ended:
            times = os.fstat(_fd)
            _ended = os.write(_fd, layout.STACKS_END.encode())
            os.utime(_fd, ns=(times.st_atime_ns, times.st_mtime_ns))
