"""The output of threads that outlive their cell. It stays in the log of the cell that started them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from ..line_file import write_all
from ..output.raw_stream import RawStream, as_text

__all__ = ["OldThreads", "install"]


class OldThreads:
    """The threads of earlier cells, and the logs of these cells."""

    def __init__(self) -> None:
        self._logs: dict[threading.Thread, int] = {}
        self._ours = set(threading.enumerate())

    def log(self) -> int | None:
        """Return the descriptor of the log to which the calling thread writes; None: of the present cell."""
        return self._logs.get(threading.current_thread()) if self._logs else None

    def end_cell(self) -> None:
        """Keep the present cell's log open for the threads that the cell has left."""
        for thread in [thread for thread in self._logs if not thread.is_alive()]:
            fd = self._logs.pop(thread)
            if fd not in self._logs.values():
                os.close(fd)
        left = [t for t in threading.enumerate() if t not in self._ours and t not in self._logs]
        if left:
            fd = os.dup(1)
            os.set_inheritable(fd, False)
            self._logs.update(dict.fromkeys(left, fd))


class _Stream(RawStream):
    """A raw stream that writes to the log of the calling thread."""

    def __init__(self, fd: int, old: OldThreads) -> None:
        super().__init__(fd)
        self._old = old

    def put(self, data: bytes) -> None:
        fd = self._old.log()
        write_all(self._fd if fd is None else fd, data)


def install() -> OldThreads:
    """Replace `sys.stdout` and `sys.stderr`. Call this before the first cell."""
    old = OldThreads()
    for name, fd in (("stdout", 1), ("stderr", 2)):
        with contextlib.suppress(Exception):
            getattr(sys, name).flush()
        stream = as_text(_Stream(fd, old))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return old
