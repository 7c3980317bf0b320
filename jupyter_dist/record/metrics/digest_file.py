"""The digest file of an attempt's metrics, `curves.json`: reading, updating and storing it.

The supervisor updates the file as points arrive (supervise/digest_update.py). A program that shows the run
reads the file. Of the ranks' events it then reads only those that the file does not cover yet.
For each rank, the file has an offset in the events and a checksum of the bytes before that offset.
If the checksum differs from that of the events, the file is ignored, and all events are read.
The file also has the places of rich output and hints among the events, because readers look for them there.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import zlib
from collections.abc import Iterable
from typing import Any

from ...folder import RunFolder, write_bytes
from ...worker import layout
from ..growing_file import GrowingFile
from ..hints import MARK
from ..outputs.rich_output import KINDS
from ..reader import parse_lines
from .digest import LINES, Digest

__all__ = ["DigestFile"]

_VERSION = 2
_CHECKED = 1024
_PIECE = 64 << 10
_MOST_NAMES = 500
_MOST_PLACES = 1000
_PLACED = (*KINDS, MARK)
_METRIC = b'"metric"'
_LINE = re.compile(
    rb'\{"seq":\d+,"time":\d+\.\d+,"kind":"metric","step":-?\d{1,15},"values":\{((?:"[^"\\\n]+":[-+.eE\d]+,?)+)\}\}'
)
_NAME = re.compile(rb'"([^"]+)":[^,]+')


class DigestFile:
    """Digest file of one attempt."""

    def __init__(self, folder: RunFolder, attempt: int, ranks: int, most_names: int = _MOST_NAMES) -> None:
        self._folder, self._attempt, self._most_names = folder, attempt, most_names
        self._path = folder.attempt(attempt) / layout.CURVES
        self.complete = False
        """Whether the last call of `read` has read all events."""
        self._begin(ranks)

    def _begin(self, ranks: int) -> None:
        self.digest = Digest(ranks, self._most_names)
        self.shown: list[list[tuple[int, int]]] = []
        """By rank: the byte ranges of the events with rich output or hints, as (first, after the last)."""
        self._events: list[GrowingFile] = []
        self.grow(ranks)

    def grow(self, ranks: int) -> None:
        """Set the number of ranks that exist by now."""
        if ranks > LINES and not self.digest.banded:
            self._begin(ranks)  # a band is made of all points
            return
        for rank in range(len(self._events), ranks):
            self._events.append(GrowingFile(self._folder.rank(self._attempt, rank).events))
            self.shown.append([])

    @property
    def offsets(self) -> list[int]:
        """Return the offset up to which each rank's events have been read."""
        return [events.offset for events in self._events]

    def load(self) -> bool:
        """Continue from the stored file. Returns False if there is no file that matches the events."""
        try:
            data = json.loads(self._path.read_bytes())
            if data["version"] != _VERSION or data["banded"] != self.digest.banded:
                return False
            read = [(int(offset), int(check)) for offset, check in data["read"]]
            if len(read) > len(self._events) or any(
                _check(events.path, offset) != check
                for events, (offset, check) in zip(self._events, read, strict=False)
            ):
                return False
            digest = Digest(len(self._events), self._most_names)
            digest.take(data["metrics"])
            shown = [[(int(first), int(end)) for first, end in places] for places in data["shown"]]
        except (OSError, ValueError, TypeError, KeyError, IndexError):
            return False
        self.digest = digest
        self.shown[: len(shown)] = shown
        for events, (offset, _) in zip(self._events, read, strict=False):
            events.offset = offset
        return True

    def store(self) -> None:
        """Write the file. Readers see the whole new file or the previous one. Raises OSError."""
        read = [[events.offset, _check(events.path, events.offset)] for events in self._events]
        data = {"version": _VERSION, "banded": self.digest.banded, "read": read, "shown": self.shown}
        write_bytes(self._path, json.dumps({**data, "metrics": self.digest.to_json()}).encode())

    def read(self, seconds: float = math.inf) -> int:
        """Read new events and return how many bytes were read.

        After `seconds` of this thread's CPU time, the rest is left for the next call.
        """
        done, until = 0, time.thread_time() + seconds
        unread = list(enumerate(self._events))
        self.complete = not unread
        while unread and time.thread_time() < until:
            rest = []
            for rank, events in unread:
                # Read a little of each rank in turn: a MB takes 20 ms.
                data = events.read(_PIECE)
                if data:
                    done += len(data)
                    self._take(rank, data, events.offset - len(data))
                    rest.append((rank, events))
                    if time.thread_time() > until:
                        break
            else:
                self.complete = not rest
            unread = rest
            self.digest.trim(all_read=all(events.offset for events in self._events))
        return done

    def _take(self, rank: int, data: bytes, offset: int) -> None:
        if not _of_one_make(self.digest, rank, data):
            _one_by_one(self.digest, rank, data)
        if not any(kind in data for kind in _PLACED):
            return
        places = self.shown[rank]
        for line in data.split(b"\n"):
            end = offset + len(line) + 1
            if any(kind in line for kind in _PLACED):
                if places and (places[-1][1] == offset or len(places) == _MOST_PLACES):
                    places[-1] = (places[-1][0], end)
                else:
                    places.append((offset, end))
            offset = end


def _of_one_make(digest: Digest, rank: int, data: bytes) -> bool:
    """Parse all metric lines with one pattern, if they differ only in their numbers.

    A rank that logs in a loop writes such lines. Returns False if any metric line has another form. Then
    nothing was added to the digest.
    """
    at = data.find(_METRIC)
    if at < 0:
        return True
    start = data.rfind(b"\n", 0, at) + 1
    first = _LINE.fullmatch(data[start : data.find(b"\n", at)])
    if first is None:
        return False
    names = _NAME.findall(first[1])
    values = b",".join(b'"' + re.escape(name) + rb'":([-+.eE\d]+)' for name in names)
    line = (
        rb'^\{"seq":\d+,"time":(\d+\.\d+),"kind":"metric","step":(-?\d{1,15}),"values":\{'
        + values
        + rb"\}\}\n"
    )
    rows = re.findall(line, data, re.MULTILINE)
    if len(rows) != data.count(_METRIC):
        return False
    columns = list(zip(*rows, strict=True))
    try:
        times, steps, *found = [list(map(float, column)) for column in columns]
        spelled = [name.decode() for name in names]
    except ValueError:
        return False
    for name, one in zip(spelled, found, strict=True):
        digest.add(rank, name, steps, one, times)
    return True


def _one_by_one(digest: Digest, rank: int, data: bytes) -> None:
    lines = [line for line in data.split(b"\n") if _METRIC in line]
    found: dict[str, tuple[list[float | None], list[float], list[float]]] = {}
    for event in parse_lines(lines):
        for name, step, value, when in _points(event):
            steps, values, times = found.setdefault(name, ([], [], []))
            steps.append(step)
            values.append(value)
            times.append(when)
    for name, columns in found.items():
        digest.add(rank, name, *columns)


def _points(event: dict[str, Any]) -> Iterable[tuple[str, float | None, float, float]]:
    values, step, when = event.get("values"), event.get("step"), event.get("time")
    if event.get("kind") != "metric" or not isinstance(values, dict) or type(when) is not float:
        return
    for name, value in values.items():
        try:
            # JSON has no NaN, so an event has the text "NaN" or "Infinity", which float() accepts.
            yield name, float(step) if type(step) is int else None, float(value), when
        except (TypeError, ValueError, OverflowError):
            continue


def _check(path: str, offset: int) -> int:
    """Return a checksum of the last bytes before `offset`. Raises OSError if the file is shorter."""
    if not offset:
        return 0
    with open(path, "rb") as file:
        data = os.pread(file.fileno(), min(_CHECKED, offset), max(0, offset - _CHECKED))
    if len(data) < min(_CHECKED, offset):
        raise FileNotFoundError(path)
    return zlib.crc32(data)
