"""How a file ends: its last bytes, and a log's last lines as a terminal would show them."""

from __future__ import annotations

import os
from pathlib import Path

from ...text.log_rendering import unrolled
from ...text.safe import clean_lines

__all__ = ["last_bytes", "last_lines"]

_LOG_BYTES = 64 << 10


def last_bytes(path: Path, most: int) -> tuple[bytes, bool]:
    """The last bytes of a file, and whether there are others before; none of a file that cannot be read."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - most))
            return file.read(most), end > most
    except OSError:
        return b"", False


def last_lines(path: Path) -> list[str]:
    """The last lines of a log, as a terminal would show them, without colours; empty when there is none."""
    data, cut = last_bytes(path, _LOG_BYTES)
    lines = clean_lines(unrolled(data).decode("utf-8", "replace"), limit=400).rstrip().split("\n")
    if cut:
        del lines[0]  # its beginning was not read
    return lines if any(lines) else []
