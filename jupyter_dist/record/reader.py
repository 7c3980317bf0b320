"""Read a run folder as it is now: the job, the state, the ranks' logs and events.

Works the same on running, finished and lost runs, and needs no running process. What is new since an earlier
look is read by cursor.py.
Metrics are put together in metrics.py, failures in failures.py.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import RunNotFound
from ..folder import RunFolder
from ..job import Job, RankState, State, Status
from ..worker.output.time_index import Times
from .process_identity import boot_id, start_ticks, supervised

__all__ = [
    "Event",
    "Line",
    "boot_id",
    "events",
    "job",
    "line_times",
    "output",
    "parse_events",
    "parse_lines",
    "ranks",
    "start_ticks",
    "status",
    "supervised",
    "timed_lines",
]

_GRACE_S = 30.0
"""From `RunFolder.still_pending` on, a run is pending for that long before its supervisor writes anything."""


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


def parse_events(data: bytes, rank: int, attempt: int) -> Iterator[Event]:
    """The events in whole lines of a rank's `events.jsonl`; what is none is passed over."""
    for event in parse_lines([line for line in data.split(b"\n") if line]):
        try:
            yield Event(
                rank, attempt, event.pop("seq"), float(event.pop("time")), str(event.pop("kind")), event
            )
        except (ValueError, KeyError, AttributeError, TypeError):
            continue  # not ours


def parse_lines(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The JSON objects among lines that are not empty, in order. What is torn or not ours is passed over."""
    try:
        # One call for all of them takes half the time, and a long run has a million.
        found = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        found = [_parsed(line) for line in lines]
    return [event for event in found if isinstance(event, dict)]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None  # torn by a full disk


def ranks(folder: RunFolder, attempt: int) -> list[RankState]:
    """The ranks of an attempt: with their states for the current one, bare for earlier ones."""
    found = status(folder)
    if found.ranks and attempt == found.attempt:
        return list(found.ranks)
    return [RankState(rank) for rank in folder.ranks(attempt)]


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
        for rank in folder.ranks(number):
            try:
                data = folder.rank(number, rank).events.read_bytes()
            except OSError:
                continue
            found += parse_events(data, rank, number)
    found.sort(key=lambda event: event.time)
    return found


def line_times(folder: RunFolder, rank: int, attempt: int) -> Iterator[Line]:
    """A rank's whole log, line by line, each with its time. The last line may be unfinished."""
    times = Times(folder.rank(attempt, rank).times)
    times.refresh()
    yield from timed_lines(output(folder, rank, attempt), 0, times, rank, attempt)


def timed_lines(
    data: bytes, offset: int, times: Times, rank: int, attempt: int, until: int | None = None
) -> Iterator[Line]:
    """The lines of a piece of a rank's log that begins at `offset`; what has no time yet came just now.

    `until`: the lines stand in place of what was written up to there, and came with its end.
    """
    now = time.time()
    for raw in data.removesuffix(b"\n").split(b"\n") if data else ():
        at = offset if until is None else until - 1
        yield Line(rank, attempt, times.at(at, now), raw.decode("utf-8", "replace"))
        offset += len(raw) + 1
