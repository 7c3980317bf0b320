"""What is new in a run's logs and events since a cursor: `Tail`.

The state is always read before the logs, so that a batch that comes with a final state holds all lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..folder import RankFolder, RunFolder
from ..job import Status
from ..worker.time_index import Times
from . import reader
from .reader import Event, Line

__all__ = ["Batch", "Tail"]

_MAX_LINE = 1 << 20
_MAX_READ = 4 << 20


@dataclass(frozen=True)
class Batch:
    """What a poll found. `partial` holds, by rank, the line that has no newline yet (a progress
    bar); `skipped` counts the bytes that `tail_bytes` left out."""

    status: Status
    lines: list[Line] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    partial: Mapping[int, str] = field(default_factory=dict)
    skipped: int = 0


class _RankTail:
    """Where reading stands in one rank's files."""

    def __init__(self, folder: RankFolder, rank: int, attempt: int, output: int = 0, events: int = 0) -> None:
        self.folder, self.rank, self.attempt = folder, rank, attempt
        self.output, self.events = output, events
        self._times = Times(folder.times)

    def read_lines(self, ended: bool, tail_bytes: int | None) -> tuple[list[Line], str, int]:
        """New lines, the unfinished one, and how many bytes were left out."""
        try:
            size = os.stat(self.folder.output).st_size
        except OSError:
            return [], "", 0
        if size <= self.output:
            return [], "", 0
        start, skipped = self.output, 0
        try:
            with open(self.folder.output, "rb") as file:
                if tail_bytes is not None and size - start > tail_bytes:
                    file.seek(size - tail_bytes)
                    cut = file.readline(_MAX_LINE)  # the rest of a line that began before
                    skipped = size - tail_bytes + len(cut) - start
                    start += skipped
                file.seek(start)
                data = file.read(_MAX_READ)
        except OSError:
            return [], "", 0
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) >= _MAX_LINE:
            whole = len(data)
        if ended and start + len(data) >= size:
            whole = len(data)
        self._times.refresh()
        lines = list(reader.timed_lines(data[:whole], start, self._times, self.rank, self.attempt))
        self.output = start + whole
        self._times.forget(self.output)
        return lines, data[whole:][-4096:].decode("utf-8", "replace"), skipped

    def read_events(self) -> list[Event]:
        try:
            if os.stat(self.folder.events).st_size <= self.events:
                return []
            with open(self.folder.events, "rb") as file:
                file.seek(self.events)
                data = file.read(_MAX_READ)
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) >= _MAX_READ:
            whole = len(data)
        self.events += whole
        return list(reader.parse_events(data[:whole], self.rank, self.attempt))

    def at_end(self) -> bool:
        for path, offset in ((self.folder.output, self.output), (self.folder.events, self.events)):
            try:
                if os.stat(path).st_size > offset:
                    return False
            except OSError:
                continue
        return True


class Tail:
    """Follows a run from a cursor. Not for several threads at once.

    `tail_bytes` bounds what one poll reads of each rank's log; what is older is left out and
    counted, so that following a flood costs no more than following a trickle.
    """

    def __init__(
        self, folder: RunFolder, *, cursor: Mapping[str, Any] | None = None, tail_bytes: int | None = None
    ) -> None:
        self._folder = folder
        self._tail_bytes = tail_bytes
        self._attempt = 0
        self._tails: dict[tuple[int, int], _RankTail] = {}
        if cursor is not None:
            self._attempt = int(cursor["attempt"])
            for key, (out, events) in cursor["ranks"].items():
                attempt, rank = (int(part) for part in key.split("/"))
                self._tails[attempt, rank] = _RankTail(
                    folder.rank(attempt, rank), rank, attempt, int(out), int(events)
                )

    @property
    def cursor(self) -> dict[str, Any]:
        """JSON with which another Tail goes on where this one stands."""
        ranks = {f"{a}/{r}": [tail.output, tail.events] for (a, r), tail in self._tails.items()}
        return {"attempt": self._attempt, "ranks": ranks}

    def poll(self) -> Batch:
        """What is new. Returns at once; with a final status it has everything but what a limit of
        4 MB per rank and poll left for the next one: see `drain`."""
        state = reader.status(self._folder)
        lines: list[Line] = []
        events: list[Event] = []
        partial: dict[int, str] = {}
        skipped = 0
        for attempt in range(self._attempt, state.attempt + 1):
            for rank in self._ranks(attempt, state):
                tail = self._tails.get((attempt, rank))
                if tail is None:
                    tail = _RankTail(self._folder.rank(attempt, rank), rank, attempt)
                    self._tails[attempt, rank] = tail
                ended = attempt < state.attempt or _rank_ended(state, rank)
                new, rest, left_out = tail.read_lines(ended, self._tail_bytes)
                lines += new
                events += tail.read_events()
                skipped += left_out
                if rest:
                    partial[rank] = rest
        self._drop_finished(state.attempt)
        lines.sort(key=lambda line: line.time)  # stable: a rank's own order is kept
        events.sort(key=lambda event: event.time)
        return Batch(state, lines, events, partial, skipped)

    def drain(self) -> Iterator[Batch]:
        """Polls until nothing is left to read right now."""
        while True:
            batch = self.poll()
            yield batch
            if not batch.lines and not batch.events:
                return

    def _ranks(self, attempt: int, state: Status) -> Iterable[int]:
        if state.ranks:
            return range(len(state.ranks))
        return self._folder.ranks(attempt)

    def _drop_finished(self, current: int) -> None:
        while self._attempt < current:
            old = [key for key in self._tails if key[0] == self._attempt]
            if not all(self._tails[key].at_end() for key in old):
                return
            for key in old:
                del self._tails[key]
            self._attempt += 1


def _rank_ended(state: Status, rank: int) -> bool:
    return state.state.ended or (rank < len(state.ranks) and state.ranks[rank].state.ended)
