"""A log as a view shows it, without lines that were rewritten. No file on disk has these bytes.

The log itself stays as it was written. `RenderedLog` stores the pieces that text/log_rendering.py found.
Each shown byte is either a byte of the log, or belongs to a text that replaces a part of it.
A shown byte never changes, and new bytes are added only at the end.
If nothing was rewritten, as in nearly all logs, the shown bytes are those of the log.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ...text.log_rendering import LogRendering, Piece

__all__ = ["RenderedLog"]

_CHUNK = 1 << 20
_MAX_TEXTS = 64 << 20
"""Limit of rewritten text.

Beyond it, the rest is shown as written. A bar for each of a million epochs is that long.
"""


class RenderedLog:
    """View of one growing file. Several threads may use it. `raw`: show the file as it was written."""

    def __init__(self, path: Path, *, raw: bool = False) -> None:
        self.path = path
        self._raw = raw
        self._lock = threading.Lock()
        self.begun = 0
        """How often the view started over, because another file replaced the previous one."""
        self._reset()

    def _reset(self) -> None:
        self._file_id = (0, 0)
        self.size = 0
        """Number of shown bytes, without the lines at the end that may still change."""
        # Start of each piece: its offset in the log, in the shown bytes, and in `_texts` (or -1).
        self._at_log, self._at_shown, self._at_text = array("Q"), array("Q"), array("q")
        self._end = 0
        """End of the last piece in the log."""
        self._texts = bytearray()
        self._unroll = LogRendering()

    def refresh(self, *, ended: bool = False) -> None:
        """Read what was appended. `ended`: the log is complete, so show all of it."""
        with self._lock:
            try:
                with open(self.path, "rb") as file:
                    self._extend(file)
            except OSError:
                if self.size:
                    self.begun += 1
                self._reset()  # removed, or not there yet
            if ended:
                self._take(self._unroll.flush())

    def _extend(self, file: BinaryIO) -> None:
        info = os.fstat(file.fileno())
        file_id = (info.st_dev, info.st_ino)
        if file_id != self._file_id or info.st_size < self._unroll.read:
            if self._file_id != (0, 0):
                self.begun += 1
            self._reset()
            self._file_id = file_id
        while self._unroll.read < info.st_size:
            chunk = os.pread(file.fileno(), min(_CHUNK, info.st_size - self._unroll.read), self._unroll.read)
            if not chunk:
                return
            whole = self._raw or len(self._texts) > _MAX_TEXTS
            self._take(self._unroll.skip(chunk) if whole else self._unroll.feed(chunk))

    def _take(self, pieces: list[Piece]) -> None:
        for end, text in pieces:
            before = -1 if text is None else len(self._texts)
            if not self._at_log or before >= 0 or self._at_text[-1] >= 0:
                self._at_log.append(self._end)
                self._at_shown.append(self.size)
                self._at_text.append(before)
            if text is not None:
                self._texts += text
            self.size += end - self._end if text is None else len(text)
            self._end = end

    def read(self, start: int, count: int) -> bytes:
        """Return at most `count` shown bytes from `start` on. Fewer if the file is gone."""
        parts = []
        with self._lock:
            stop = min(start + count, self.size)
            piece = bisect_right(self._at_shown, start) - 1
            while start < stop:
                piece_start, end = self._at_shown[piece], self._shown_end(piece)
                upto, text = min(stop, end), self._at_text[piece]
                if text >= 0:
                    parts.append(bytes(self._texts[text + start - piece_start : text + upto - piece_start]))
                elif upto > start:
                    parts.append(self.of_log(self._at_log[piece] + start - piece_start, upto - start))
                start, piece = upto, piece + 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def of_log(self, start: int, count: int) -> bytes:
        """Return bytes of the log itself. Empty if the file is gone."""
        try:
            with open(self.path, "rb") as file:
                return os.pread(file.fileno(), count, start)
        except OSError:
            return b""

    def _shown_end(self, piece: int) -> int:
        return self._at_shown[piece + 1] if piece + 1 < len(self._at_shown) else self.size

    def in_log(self, end: int) -> int:
        """Return the offset in the log by which the shown bytes before `end` had been written."""
        if not self._texts:
            return end
        with self._lock:
            piece = bisect_left(self._at_shown, end) - 1
            if piece < 0:
                return 0
            if self._at_text[piece] >= 0:
                return self._at_log[piece + 1] if piece + 1 < len(self._at_log) else self._end
            return self._at_log[piece] + end - self._at_shown[piece]

    def shown(self, offset: int) -> int:
        """Return how many bytes are shown of the log's first `offset` bytes."""
        with self._lock:
            if offset >= self._end:
                return self.size
            piece = bisect_right(self._at_log, offset) - 1
            if self._at_text[piece] >= 0:
                return self._at_shown[piece]
            return self._at_shown[piece] + offset - self._at_log[piece]

    def rest(self) -> tuple[list[bytes], tuple[int, int]]:
        """Return what follows the shown bytes and may still change: lines, and their place in the log.

        Lines that a progress bar rewrites are returned as they look now. A line that only lacks its newline
        is not returned, because it may be very long. Its place in the log is enough to read it.
        """
        with self._lock:
            place = self._unroll.done, self._unroll.read
            return (self._unroll.rest() if self._unroll.rewriting else []), place

    def chunks(self) -> Iterator[bytes]:
        """Yield all that is shown now, in pieces."""
        start, size = 0, self.size
        while start < size and (chunk := self.read(start, min(_CHUNK, size - start))):
            start += len(chunk)
            yield chunk
