"""Reader of a run folder as it is now: the job, the state, the ranks' logs and events.

It works the same for running, finished and lost runs, and needs no running process. cursor.py reads only
what is new since an earlier call. metrics/points.py collects metrics, failures/failures.py collects failures.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import RunNotFound
from ..folder import RankFolder, RunFolder
from ..job import Job, RankState, State, Status, rank_count
from ..worker.output.time_index import Times
from . import stored_status
from .logs.last_lines import last_bytes
from .process_identity import SILENCE_S, boot_id, start_ticks, supervised

__all__ = [
    "Event",
    "Line",
    "boot_id",
    "events",
    "job",
    "last_events",
    "line_times",
    "output",
    "parse_events",
    "parse_lines",
    "rank_count_of",
    "ranks",
    "start_ticks",
    "status",
    "supervised",
    "timed_lines",
]

_GRACE_S = 30.0
"""Seconds after `RunFolder.still_pending` during which a run without a state counts as pending."""


_END_BYTES = 256 << 10
"""A record of collectives has up to 20 kB, and only a result follows it."""
_BEGINNING = b'{"seq":'
"""The beginning of each event that `EventWriter` writes."""


class Line(NamedTuple):
    """One line of a rank's output. `text` has no newline, and bytes that are not UTF-8 are replaced."""

    rank: int
    attempt: int
    time: float
    text: str


class Event(NamedTuple):
    """One line of a rank's `events.jsonl`. The fields of `data` depend on the kind."""

    rank: int
    attempt: int
    seq: int
    time: float
    kind: str
    data: Mapping[str, Any]


def job(folder: RunFolder) -> Job:
    """Read the run's job. Raises RunNotFound if the run was removed, or `job.json` is missing or invalid."""
    try:
        return Job.from_json(json.loads(folder.job.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = (
            f"is not a run: {folder.job.name} cannot be read ({error})"
            if folder.path.exists()
            else "was removed"
        )
        raise RunNotFound(f"{str(folder.path)!r} {why}.") from error


def status(folder: RunFolder) -> Status:
    """Return the run's current status. A run whose supervisor is gone is `lost`. Nothing is written.

    While a backend starts many ranks, the first ones may run already. Then the run is `running`.
    """
    found = _stored(folder)
    return _begun(folder, found) if found.state is State.PENDING else found


def _stored(folder: RunFolder) -> Status:
    try:
        found = stored_status.read(folder)
        # Asked once for each state: a supervisor that lives now may write its last state and end meanwhile.
        is_sure = found is None or found.state.ended or supervised(found)
        if not is_sure:
            # The supervisor may have written its last state after the first read and before its end. And a
            # network disk may answer from a cache, which a listing of the folder renews.
            with contextlib.suppress(OSError):
                os.listdir(folder.path)
            found = stored_status.read(folder)
            is_sure = found is not None and (found.state.ended or supervised(found))
    except (OSError, ValueError) as error:
        return Status(folder.id, State.LOST, reason=f"{folder.state.name} cannot be read: {error}")
    if found is None:
        return _unsupervised(folder)
    if is_sure or _beats_by_the_disk(folder, found):
        return found
    if found.state is State.UNWATCHED:
        return found  # its own reason stays
    if found.handle is not None or found.submitting is not None:
        return dataclasses.replace(
            found,
            state=State.UNWATCHED,
            reason="the supervisor is gone; its ranks may still run: attach to the run to supervise it",
        )
    ranks = tuple(rank.over(State.LOST, found.heartbeat) for rank in found.ranks)
    return dataclasses.replace(
        found,
        state=State.LOST,
        ranks=ranks,
        ended=found.heartbeat,
        reason="the supervisor is gone; its ranks were ended with it",
    )


def _begun(folder: RunFolder, found: Status) -> Status:
    """Return the status of a pending run with the ranks that have written an event."""
    ranks = {rank.rank: rank for rank in found.ranks}
    begun = {
        rank: dataclasses.replace(ranks.get(rank, RankState(rank)), state=State.RUNNING, started=when)
        for rank in folder.ranks(found.attempt)
        if (when := _first_event(folder.rank(found.attempt, rank).events)) is not None
    }
    if not begun:
        return found
    started = min(rank.started for rank in begun.values() if rank.started is not None)
    known = {rank: RankState(rank) for rank in range(max(begun) + 1)} | ranks | begun
    return dataclasses.replace(
        found,
        state=State.RUNNING,
        started=found.started or started,
        ranks=tuple(known[rank] for rank in sorted(known)),
    )


def _first_event(path: Path) -> float | None:
    """Return the time of the first event in a file. None if there is none."""
    try:
        with open(path, "rb") as file:
            return float(json.loads(file.readline())["time"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _beats_by_the_disk(folder: RunFolder, found: Status) -> bool:
    """Return whether a supervisor on another host has written lately, though its clock differs from ours."""
    if found.supervisor is None or found.supervisor.host == socket.gethostname():
        return False
    try:
        return abs(time.time() - folder.state.stat().st_mtime) < SILENCE_S
    except OSError:
        return False


def _unsupervised(folder: RunFolder) -> Status:
    try:
        created = folder.job.stat().st_mtime
    except OSError as error:
        return Status(folder.id, State.LOST, reason=f"{folder.job.name} cannot be read: {error}")
    if time.time() - created < _GRACE_S:
        return Status(folder.id, State.PENDING, created=created)
    return Status(folder.id, State.LOST, created=created, reason="the supervisor never started")


def parse_events(data: bytes, rank: int, attempt: int) -> Iterator[Event]:
    """Yield the events in whole lines of a rank's `events.jsonl`. Other lines are skipped.

    If the line of an event was cut, the last event is a note about it.
    """
    lines = [line for line in data.split(b"\n") if line]
    parsed, when = parse_lines(lines), 0.0
    for event in parsed:
        try:
            when = float(event.pop("time"))
            yield Event(rank, attempt, event.pop("seq"), when, str(event.pop("kind")), event)
        except (ValueError, KeyError, AttributeError, TypeError):
            continue  # not an event of jupyter-dist
    # A line without an end may still be written.
    if len(parsed) < len(lines) and any(map(_is_torn, data.split(b"\n")[:-1])):
        text = "A record of this rank is not whole, as after a full disk. It was skipped."
        yield Event(rank, attempt, -1, when, "note", {"text": text})


def last_events(rank: RankFolder, kind: str | None = None) -> list[dict[str, Any]]:
    """Return the events of one kind, or of all, in the last 256 KiB of a rank's events, the newest first."""
    data, _ = last_bytes(rank.events, _END_BYTES)
    mark = b"" if kind is None else f'"kind": "{kind}"'.encode()
    lines = [line for line in data.split(b"\n") if line and mark in line]
    found = [event for event in parse_lines(lines) if isinstance(event.get("time"), float)]
    return found[::-1]


def parse_lines(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return the JSON objects among nonempty lines, in order. Torn and invalid lines are skipped."""
    try:
        # One call for all lines takes half the time, and a long run has a million lines.
        found = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        found = [_parsed(line) for line in lines]
    return [event for event in found if isinstance(event, dict)]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        # A full disk has cut this line. Another process of the rank may have continued it with its own line.
        second = line.rfind(_BEGINNING)
        return _parsed(line[second:]) if second > 0 else None


def _is_torn(line: bytes) -> bool:
    return bool(line) and _BEGINNING.startswith(line[: len(_BEGINNING)]) and _parsed(line) is None


def ranks(folder: RunFolder, attempt: int) -> list[RankState]:
    """Return the ranks of an attempt. Only those of the current attempt have a state."""
    found = status(folder)
    if found.ranks and attempt == found.attempt:
        return list(found.ranks)
    return [RankState(rank) for rank in folder.ranks(attempt)]


def rank_count_of(folder: RunFolder, found: Status, attempt: int) -> int:
    """Return the number of ranks to show of an attempt. Raises RunNotFound.

    An earlier attempt of an elastic run may have had more ranks than the current one.
    """
    size = rank_count(job(folder), found)
    if attempt == found.attempt:
        return size
    return max(size, 1 + max(folder.ranks(attempt), default=-1))


def output(folder: RunFolder, rank: int, attempt: int | None = None) -> bytes:
    """Return a rank's whole log as it is now, by default of the newest attempt. Empty if there is none."""
    if attempt is None:
        attempt = max(folder.attempts(), default=0)
    try:
        return folder.rank(attempt, rank).output.read_bytes()
    except OSError:
        return b""


def events(folder: RunFolder, attempt: int | None = None) -> list[Event]:
    """Return all events of an attempt, by default of all attempts, in the order of their times."""
    attempts = folder.attempts() if attempt is None else [attempt]
    found: list[Event] = []
    for number in attempts:
        for rank in folder.ranks(number):
            try:
                data = folder.rank(number, rank).events.read_bytes()
            except OSError:
                continue
            found += parse_events(data, rank, number)
    found.sort(key=lambda event: event.time)
    return found


def line_times(folder: RunFolder, rank: int, attempt: int) -> Iterator[Line]:
    """Yield a rank's whole log line by line, each line with its time. The last line may be unfinished."""
    times = Times(folder.rank(attempt, rank).times)
    times.refresh()
    yield from timed_lines(output(folder, rank, attempt), 0, times, rank, attempt)


def timed_lines(
    data: bytes, offset: int, times: Times, rank: int, attempt: int, until: int | None = None
) -> Iterator[Line]:
    """Yield the lines of a piece of a rank's log that begins at `offset`.

    A line without a time in the index gets the current time.
    `until`: the lines replace what was written up to this offset, and have the time of its last byte.
    """
    now = time.time()
    for raw in data.removesuffix(b"\n").split(b"\n") if data else ():
        at = offset if until is None else until - 1
        yield Line(rank, attempt, times.at(at, now), raw.decode("utf-8", "replace"))
        offset += len(raw) + 1
