"""Index that finds the lines of a growing log by number, without reading the whole log.

The sparse index keeps the offset of every 256th line, and of one line per MB if lines are long.
Building it reads the log once. Later only appended bytes are read.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...record.logs.rendered_log import RenderedLog

__all__ = ["LineIndex", "RawLine", "cut_text"]

_EVERY = 256
_CHUNK = 1 << 20
_KEPT = 80_000
"""Bytes kept of a line's beginning and of its end. A view shows fewer."""
MAX_CHARS = 20_000


@dataclass(frozen=True)
class RawLine:
    """One line without its newline. `end` is the offset in the log after it. A long line lacks its middle."""

    data: bytes
    end: int
    whole: bool = True


class LineIndex:
    """Shown lines of one file (record/logs/rendered_log.py), or `raw` lines. Several threads may use it."""

    def __init__(self, path: Path, *, raw: bool = False) -> None:
        self.path = path
        self.log = RenderedLog(path, raw=raw)
        self._lock = threading.Lock()
        self._begun = 0
        self._reset()

    def _reset(self) -> None:
        self._lines, self._offsets = array("Q", [0]), array("Q", [0])
        self.count = 0
        """Number of lines with a newline."""
        self._size = 0
        """Bytes read so far."""
        self._whole = 0
        """Bytes up to the end of the last line with a newline."""

    def refresh(self, *, ended: bool = False) -> int:
        """Read what was appended and return the number of lines.

        `ended`: the log is complete. Then no line is held back, and a last line without a newline counts.
        """
        with self._lock:
            self.log.refresh(ended=ended)
            if self.log.begun != self._begun:
                self._begun = self.log.begun
                self._reset()
            while chunk := self.log.read(self._size, _CHUNK):
                self._take(chunk)
            return self.count + (ended and self._size > self._whole)

    def _take(self, chunk: bytes) -> None:
        last = chunk.rfind(b"\n")
        if last >= 0:
            starts = np.flatnonzero(np.frombuffer(chunk, np.uint8) == 10) + (self._size + 1)
            picked = range(_EVERY - 1 - self.count % _EVERY, len(starts), _EVERY)
            if picked:
                self._lines.extend(self.count + 1 + i for i in picked)
                self._offsets.extend(starts[picked.start :: _EVERY].tolist())
            elif int(starts[0]) - self._offsets[-1] >= _CHUNK:
                self._lines.append(self.count + 1)
                self._offsets.append(int(starts[0]))
            self.count += len(starts)
            self._whole = self._size + last + 1
        self._size += len(chunk)

    def read(self, start: int, count: int) -> Iterator[RawLine]:
        """Yield at most `count` finished lines, from number `start` on."""
        with self._lock:
            count = min(count, self.count - start)
            at = bisect_right(self._lines, start) - 1
            line, offset, end = self._lines[at], self._offsets[at], self._whole
        if count <= 0:
            return
        for found in _lines(self.log, offset, end, start - line):
            yield found
            count -= 1
            if not count:
                return

    def line_at(self, offset: int) -> int:
        """Return the number of the line that contains a shown byte.

        It equals the number of line ends before it.
        """
        with self._lock:
            at = bisect_right(self._offsets, offset) - 1
            line, begin = self._lines[at], self._offsets[at]
        return line + self.log.read(begin, offset - begin).count(b"\n")

    def rest(self) -> list[RawLine]:
        """Return the lines at the end that may still change: a progress bar, and a line without a newline."""
        lines, (start, end) = self.log.rest()
        read: Callable[[int, int], bytes] = self.log.of_log
        if lines:
            return [RawLine(line, end) for line in lines]
        if self._size > self._whole:  # the log is complete
            start, stop, read = self._whole, self._size, self.log.read
        else:
            stop = end
        if stop - start <= 2 * _KEPT:
            data = read(start, stop - start)
            return [RawLine(data, end)] if data else []
        return [RawLine(read(start, _KEPT) + read(stop - _KEPT, _KEPT), end, False)]


def _lines(log: RenderedLog, offset: int, end: int, skip: int) -> Iterator[RawLine]:
    """Yield finished lines between two offsets, after the first `skip` lines. Reads while it yields."""
    rest, whole, size = b"", True, 64 << 10
    while offset < end:
        chunk = log.read(offset, min(size, end - offset))
        if not chunk:
            return
        size = _CHUNK
        *lines, tail = chunk.split(b"\n")
        if skip:
            passed = min(skip, len(lines))
            offset += sum(map(len, lines[:passed])) + passed
            lines = lines[passed:]
            skip -= passed
            if passed:
                rest, whole = b"", True
        if skip:
            offset += len(tail)
            continue
        for data in lines:
            offset += len(data) + 1
            yield RawLine(rest + data, log.in_log(offset), whole)
            rest, whole = b"", True
        offset += len(tail)
        rest += tail
        if len(rest) > 3 * _KEPT:
            rest, whole = rest[:_KEPT] + rest[-_KEPT:], False


def cut_text(line: RawLine, limit: int = MAX_CHARS) -> tuple[str, bool]:
    """Return the text of a line, and whether it was cut.

    A line that a progress bar rewrote keeps its end, as on a terminal. Other lines keep their beginning.
    """
    text = line.data.decode("utf-8", "replace")
    if len(text) <= limit:
        return text, not line.whole
    back = text.find("\r", len(text) - limit)
    return (text[:limit] if back < 0 else text[back + 1 :]), True
