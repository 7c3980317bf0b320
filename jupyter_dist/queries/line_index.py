"""Find the lines of a log that grows, by number, without reading it whole.

A sparse index keeps the offset of every 256th line, and of one line per MB where lines are long.
Building it reads the file once; later only what was appended is read.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

__all__ = ["LineIndex", "RawLine", "cut_text"]

_EVERY = 256
_CHUNK = 1 << 20
_KEPT = 80_000
"""Bytes kept of a line's beginning and of its end: more than are ever shown."""
MAX_CHARS = 20_000


@dataclass(frozen=True)
class RawLine:
    """One line without its newline; `end` is the offset after it. A long one lacks its middle."""

    data: bytes
    end: int
    whole: bool = True


class LineIndex:
    """The lines of one file. Used by several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._file_id = (0, 0)
        self._lines, self._offsets = array("Q", [0]), array("Q", [0])
        self.count = 0
        """Lines that have a newline."""
        self.size = 0
        """Bytes looked at."""
        self.whole = 0
        """Bytes up to the end of the last line that has a newline."""

    def refresh(self, until: int | None = None) -> int:
        """Take in what was appended (up to the offset `until`, if given); returns the lines there are."""
        with self._lock:
            try:
                with open(self.path, "rb") as file:
                    self._extend(file, until)
            except OSError:
                self._reset()  # removed, or not there yet
            return self.count

    def _extend(self, file: BinaryIO, until: int | None) -> None:
        info = os.fstat(file.fileno())
        if (info.st_dev, info.st_ino) != self._file_id or info.st_size < self.size:
            self._reset()
            self._file_id = (info.st_dev, info.st_ino)
        end = info.st_size if until is None else min(until, info.st_size)
        while self.size < end:
            chunk = os.pread(file.fileno(), min(_CHUNK, end - self.size), self.size)
            if not chunk:
                return
            self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        last = chunk.rfind(b"\n")
        if last >= 0:
            starts = np.flatnonzero(np.frombuffer(chunk, np.uint8) == 10) + (self.size + 1)
            picked = range(_EVERY - 1 - self.count % _EVERY, len(starts), _EVERY)
            if picked:
                self._lines.extend(self.count + 1 + i for i in picked)
                self._offsets.extend(starts[picked.start :: _EVERY].tolist())
            elif int(starts[0]) - self._offsets[-1] >= _CHUNK:
                self._lines.append(self.count + 1)
                self._offsets.append(int(starts[0]))
            self.count += len(starts)
            self.whole = self.size + last + 1
        self.size += len(chunk)

    def read(self, start: int, count: int) -> Iterator[RawLine]:
        """Lines from number `start` on, finished ones only; at most `count`."""
        with self._lock:
            count = min(count, self.count - start)
            at = bisect_right(self._lines, start) - 1
            line, offset, end = self._lines[at], self._offsets[at], self.whole
        if count <= 0:
            return
        for found in _lines(self.path, offset, end, start - line):
            yield found
            count -= 1
            if not count:
                return

    def partial(self, until: int | None = None) -> RawLine | None:
        """The line at the end that has no newline yet."""
        start, end = self.whole, self.size if until is None else until
        if end <= start:
            return None
        try:
            with open(self.path, "rb") as file:
                head = os.pread(file.fileno(), min(end - start, 2 * _KEPT), start)
                if end - start <= 2 * _KEPT:
                    return RawLine(head, end)
                return RawLine(head[:_KEPT] + os.pread(file.fileno(), _KEPT, end - _KEPT), end, False)
        except OSError:
            return None


def _lines(path: Path, offset: int, end: int, skip: int) -> Iterator[RawLine]:
    """Finished lines between two offsets, after the first `skip` ones. Reads as it goes."""
    rest, whole, size = b"", True, 64 << 10
    with open(path, "rb") as file:
        while offset < end:
            chunk = os.pread(file.fileno(), min(size, end - offset), offset)
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
                yield RawLine(rest + data, offset, whole)
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
