"""Read a run folder: its state, and what is new in its logs and events since a cursor.

Works the same on running, finished and lost runs, and needs no running process. A state is
always read before the logs, so a batch that comes with a final state holds all lines.
Metrics are put together in metrics.py, failures in failures.py.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import RunNotFound
from ..folder import RankFolder, RunFolder
from ..job import Job, RankState, State, Status
from ..worker.time_index import Times
from .identity import boot_id, start_ticks, supervised

__all__ = [
    "Batch",
    "Event",
    "Line",
    "Tail",
    "boot_id",
    "events",
    "job",
    "line_times",
    "output",
    "ranks",
    "start_ticks",
    "status",
    "supervised",
]

_GRACE_S = 30.0
"""A run is pending for that long before its supervisor has written anything."""
_MAX_LINE = 1 << 20
_MAX_READ = 4 << 20


class Line(NamedTuple):
    """One line of a rank's output. `text` has no newline; bytes that are not UTF-8 are replaced."""

    rank: int
    attempt: int
    time: float
    text: str


class Event(NamedTuple):
    """One line of a rank's `events.jsonl`; `data` is what the kind brings along."""

    rank: int
    attempt: int
    seq: int
    time: float
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """What a poll found. `partial` holds, by rank, the line that has no newline yet (a progress
    bar); `skipped` counts the bytes that `tail_bytes` left out."""

    status: Status
    lines: list[Line] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    partial: Mapping[int, str] = field(default_factory=dict)
    skipped: int = 0


def job(folder: RunFolder) -> Job:
    """The run's job. Raises RunNotFound when it was removed, or `job.json` is missing or not ours."""
    try:
        return Job.from_json(json.loads(folder.job.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = (
            f"is not a run: {folder.job.name} cannot be read ({error})"
            if folder.path.exists()
            else "was removed"
        )
        raise RunNotFound(f"{str(folder.path)!r} {why}.") from error


def _stored(folder: RunFolder) -> Status | None:
    """The status as written; None while there is none. ValueError when it cannot be understood."""
    try:
        data = json.loads(folder.state.read_bytes())
    except FileNotFoundError:
        return None
    try:
        return Status.from_json(data)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(str(error)) from error


def status(folder: RunFolder) -> Status:
    """How the run stands now. A run whose supervisor is gone is `lost`; nothing is written."""
    try:
        found = _stored(folder)
        if found is not None and not found.state.ended and not supervised(found):
            # It may have written its last state between our reading and its end.
            found = _stored(folder)
    except (OSError, ValueError) as error:
        return Status(folder.id, State.LOST, reason=f"{folder.state.name} cannot be read: {error}")
    if found is None:
        return _unsupervised(folder)
    if found.state.ended or supervised(found):
        return found
    if found.state is State.UNWATCHED:
        return found  # it says itself why
    if found.handle is not None or found.submitting is not None:
        return dataclasses.replace(
            found,
            state=State.UNWATCHED,
            reason="the supervisor is gone; the ranks go on for a while: attach to the run to take it on",
        )
    ranks = tuple(
        r if r.state.ended else dataclasses.replace(r, state=State.LOST, ended=found.heartbeat)
        for r in found.ranks
    )
    return dataclasses.replace(
        found,
        state=State.LOST,
        ranks=ranks,
        ended=found.heartbeat,
        reason="the supervisor is gone; its ranks were ended with it",
    )


def _unsupervised(folder: RunFolder) -> Status:
    try:
        created = folder.job.stat().st_mtime
    except OSError as error:
        return Status(folder.id, State.LOST, reason=f"{folder.job.name} cannot be read: {error}")
    if time.time() - created < _GRACE_S:
        return Status(folder.id, State.PENDING, created=created)
    return Status(folder.id, State.LOST, created=created, reason="the supervisor never started")


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
        lines = list(_timed(data[:whole], start, self._times, self.rank, self.attempt))
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
        return list(_parse_events(data[:whole], self.rank, self.attempt))

    def at_end(self) -> bool:
        for path, offset in ((self.folder.output, self.output), (self.folder.events, self.events)):
            try:
                if os.stat(path).st_size > offset:
                    return False
            except OSError:
                continue
        return True


def _parse_events(data: bytes, rank: int, attempt: int) -> Iterator[Event]:
    lines = data.split(b"\n")
    try:
        # All at once: a third faster, and a long run has a million of them.
        parsed = json.loads(b"[" + b",".join(filter(None, lines)) + b"]")
    except ValueError:
        parsed = [_parsed(line) for line in lines]
    for event in parsed:
        try:
            yield Event(
                rank, attempt, event.pop("seq"), float(event.pop("time")), str(event.pop("kind")), event
            )
        except (ValueError, KeyError, AttributeError, TypeError):
            continue  # not ours


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None  # torn by a full disk


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
        state = status(self._folder)
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
        return _ranks_on_disk(self._folder, attempt)

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


def _ranks_on_disk(folder: RunFolder, attempt: int) -> list[int]:
    try:
        names = os.listdir(folder.rank(attempt, 0).path.parent)
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdigit())


def ranks(folder: RunFolder, attempt: int) -> list[RankState]:
    """The ranks of an attempt: with their states for the current one, bare for earlier ones."""
    found = status(folder)
    if found.ranks and attempt == found.attempt:
        return list(found.ranks)
    return [RankState(rank) for rank in _ranks_on_disk(folder, attempt)]


def output(folder: RunFolder, rank: int, attempt: int | None = None) -> bytes:
    """A rank's whole log as it is now; of the newest attempt by default. Empty when there is none."""
    if attempt is None:
        attempt = max(folder.attempts(), default=0)
    try:
        return folder.rank(attempt, rank).output.read_bytes()
    except OSError:
        return b""


def events(folder: RunFolder, attempt: int | None = None) -> list[Event]:
    """All events of an attempt (of all attempts by default) in the order of their times."""
    attempts = folder.attempts() if attempt is None else [attempt]
    found: list[Event] = []
    for number in attempts:
        for rank in _ranks_on_disk(folder, number):
            try:
                data = folder.rank(number, rank).events.read_bytes()
            except OSError:
                continue
            found += _parse_events(data, rank, number)
    found.sort(key=lambda event: event.time)
    return found


def line_times(folder: RunFolder, rank: int, attempt: int) -> Iterator[Line]:
    """A rank's whole log, line by line, each with its time. The last line may be unfinished."""
    times = Times(folder.rank(attempt, rank).times)
    times.refresh()
    yield from _timed(output(folder, rank, attempt), 0, times, rank, attempt)


def _timed(data: bytes, offset: int, times: Times, rank: int, attempt: int) -> Iterator[Line]:
    """The lines of a piece of a rank's log that begins at `offset`; what has no time yet came just now."""
    now = time.time()
    for raw in data.removesuffix(b"\n").split(b"\n") if data else ():
        yield Line(rank, attempt, times.at(offset, now), raw.decode("utf-8", "replace"))
        offset += len(raw) + 1
