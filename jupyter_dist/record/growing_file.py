"""Reader of the new lines of a growing file of JSON lines."""

from __future__ import annotations

import os

from ..worker import listing

__all__ = ["GrowingFile"]

_MAX_READ = 1 << 20


class GrowingFile:
    """File whose new whole lines are read, at most 1 MB at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)  # a run of thousands of ranks asks for thousands of sizes at once
        self.offset = 0

    def skip_to_tail(self, nbytes: int) -> None:
        """Skip all but the last `nbytes` bytes. The next read may begin within a line."""
        size = listing.size(self.path)
        if size - self.offset > nbytes:
            self.offset = size - nbytes
            # The rest of a line is not JSON, so every parser of these lines skips it.

    def read(self, most: int = _MAX_READ) -> bytes:
        """Read new whole lines, about `most` bytes of them.

        Empty if there are none. Call until it is empty.
        """
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
            whole = len(data)  # jupyter-dist writes no line of that size
        self.offset += whole
        return data[:whole]
