"""Find the lines of a log that grows, by number, without reading it whole.

A sparse index keeps the offset of every 256th line, and of one line per MB where lines are long.
Building it reads the log once; later only what was appended is read.
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
"""Bytes kept of a line's beginning and of its end: more than are ever shown."""
MAX_CHARS = 20_000


@dataclass(frozen=True)
class RawLine:
    """One line without its newline; `end` is the offset in the log after it. A long one lacks its middle."""

    data: bytes
    end: int
    whole: bool = True


class LineIndex:
    """The lines that are shown of one file (record/logs/rendered_log.py), or `raw` ones. Used by several
    threads.
    """

    def __init__(self, path: Path, *, raw: bool = False) -> None:
        self.path = path
        self.log = RenderedLog(path, raw=raw)
        self._lock = threading.Lock()
        self._begun = 0
        self._reset()

    def _reset(self) -> None:
        self._lines, self._offsets = array("Q", [0]), array("Q", [0])
        self.count = 0
        """Lines that have a newline."""
        self._size = 0
        """Bytes looked at."""
        self._whole = 0
        """Bytes up to the end of the last line that has a newline."""

    def refresh(self, *, ended: bool = False) -> int:
        """Take in what was appended; returns the lines there are.

        `ended`: nothing more will come, so that no line is held back, and one without a newline counts.
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
        """Lines from number `start` on, finished ones only; at most `count`."""
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
        """The number of the line in which a byte of what is shown stands: how many ended before it."""
        with self._lock:
            at = bisect_right(self._offsets, offset) - 1
            line, begin = self._lines[at], self._offsets[at]
        return line + self.log.read(begin, offset - begin).count(b"\n")

    def rest(self) -> list[RawLine]:
        """The lines at the end that may still change: those of a bar, and one that has no newline."""
        lines, (start, end) = self.log.rest()
        read: Callable[[int, int], bytes] = self.log.of_log
        if lines:
            return [RawLine(line, end) for line in lines]
        if self._size > self._whole:  # the log is at its end
            start, stop, read = self._whole, self._size, self.log.read
        else:
            stop = end
        if stop - start <= 2 * _KEPT:
            data = read(start, stop - start)
            return [RawLine(data, end)] if data else []
        return [RawLine(read(start, _KEPT) + read(stop - _KEPT, _KEPT), end, False)]


def _lines(log: RenderedLog, offset: int, end: int, skip: int) -> Iterator[RawLine]:
    """Finished lines between two offsets, after the first `skip` ones. Reads as it goes."""
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
    """The text of a line and whether something was cut.

    What a progress bar rewrote keeps its end, which is what a terminal shows; others their beginning.
    """
    text = line.data.decode("utf-8", "replace")
    if len(text) <= limit:
        return text, not line.whole
    back = text.find("\r", len(text) - limit)
    return (text[:limit] if back < 0 else text[back + 1 :]), True
