"""What was appended to a file of JSON lines since the last look."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["GrowingFile"]

_MAX_READ = 1 << 20


class GrowingFile:
    """Gives a file's new whole lines, a MB at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0

    def skip_to_tail(self, nbytes: int) -> None:
        """Pass over all but the last bytes, up to the beginning of a line."""
        try:
            size = os.stat(self.path).st_size
        except OSError:
            return
        if size - self.offset > nbytes:
            self.offset = size - nbytes
            # What is left of the line is no JSON by itself, and is passed over as such.

    def read(self, most: int = _MAX_READ) -> bytes:
        """New whole lines, of about `most` bytes; empty when there are none. Call again until it is empty."""
        try:
            if os.stat(self.path).st_size <= self.offset:
                return b""
            with open(self.path, "rb") as file:
                data = os.pread(file.fileno(), most, self.offset)
                if most < _MAX_READ and b"\n" not in data:
                    data = os.pread(file.fileno(), _MAX_READ, self.offset)
        except OSError:
            return b""
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == _MAX_READ:
            whole = len(data)  # one line of that size is not ours
        self.offset += whole
        return data[:whole]
