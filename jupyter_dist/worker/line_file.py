"""Whole writes, and files to which processes append lines.

`os.write` may write only a part of its bytes, for example when the disk becomes full. It raises nothing then.
All writes of jupyter-dist into files therefore use this module.
"""

from __future__ import annotations

import os

__all__ = ["LineFile", "append_line", "write_all"]


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes to a blocking file, pipe or socket. Raises OSError; a part may be written then."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class LineFile:
    """A file to which this process and others append whole lines, with one write for each line.

    If only a part of a line fits on the disk, the part stays: an agent may have sent it already. The next
    line of this object, or of an object that opens the file later, begins on a line of its own.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(self._fd).st_size
        self._torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    def append(self, line: bytes) -> None:
        """Append a line, which ends with a newline. Raises OSError if the line is not whole in the file."""
        if self._torn:
            line = b"\n" + line
        done = os.write(self._fd, line)  # if this raises, nothing is written
        if done == len(line):
            self._torn = False
            return
        try:
            while done < len(line):
                done += os.write(self._fd, line[done:])
        finally:
            self._torn = line[done - 1] != 10

    def close(self) -> None:
        os.close(self._fd)


def append_line(path: str | os.PathLike[str], line: bytes) -> None:
    """Append one line to a file that other processes may have written. Raises OSError."""
    file = LineFile(path)
    try:
        file.append(line)
    finally:
        file.close()
