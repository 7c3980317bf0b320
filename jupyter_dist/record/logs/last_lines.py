"""The end of a file: its last bytes, and a log's last lines as a terminal shows them."""

from __future__ import annotations

import os
from pathlib import Path

from ...text.log_rendering import unrolled
from ...text.safe import clean_lines

__all__ = ["last_bytes", "last_lines"]

_LOG_BYTES = 64 << 10


def last_bytes(path: Path, most: int) -> tuple[bytes, bool]:
    """Return the last bytes of a file, and whether the file has more. An unreadable file gives no bytes."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - most))
            return file.read(most), end > most
    except OSError:
        return b"", False


def last_lines(path: Path, most: int = _LOG_BYTES) -> list[str]:
    """Return the last lines of a log as a terminal shows them, without colours. Empty if there is no log.

    `most`: the bytes that are read.
    """
    data, cut = last_bytes(path, most)
    lines = clean_lines(unrolled(data).decode("utf-8", "replace"), limit=400).rstrip().split("\n")
    if cut:
        del lines[0]  # this line's beginning was not read
    return lines if any(lines) else []
