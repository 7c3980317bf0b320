"""Text streams over a descriptor, which write each line at once."""

from __future__ import annotations

import io

from ..line_file import write_all

__all__ = ["RawStream", "as_text"]


class RawStream(io.RawIOBase):
    """A descriptor as a raw stream, which writes all bytes."""

    mode = "wb"

    def __init__(self, fd: int) -> None:
        self._fd = self.name = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # typeshed has no name for all buffers
        self.put(bytes(view))
        return len(view)

    def put(self, data: bytes) -> None:
        """Write the bytes. Subclasses choose where, and what an error means."""
        write_all(self._fd, data)


def as_text(raw: RawStream) -> io.TextIOWrapper:
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
