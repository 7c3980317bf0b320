"""The backend of a run that shows a job which somebody else has started. It starts nothing.

A `JobClient` of the platform reads the job. A failed request does not end the run: the job is not ours.
"""

from __future__ import annotations

import calendar
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from ..folder import RunFolder, make_private, open_private
from ..job import Job, Poll, RankState, State
from ..worker import layout
from ..worker.output import time_index
from .interface import Capabilities, Handle

__all__ = ["AttachedJob", "AttachedLog", "JobClient", "JobEnd", "JobStatus", "lag_s", "seconds", "showing"]

_LAG_S = 5.0


@dataclass(frozen=True)
class JobEnd:
    """The end of a job, as its platform reports it."""

    state: State
    why: str | None
    at: float | None
    """When the job ended. None: unknown."""
    rest_s: float
    """How long the run waits for the rest of the job's output, in seconds since the end was first seen."""


@dataclass(frozen=True)
class JobStatus:
    """A job at one moment."""

    state: State
    """PENDING or RUNNING, also while the run waits for the rest of an ended job's output."""
    ranks: tuple[RankState, ...]
    detail: str | None
    end: JobEnd | None = None


class JobClient(Protocol):
    """A connection to one job. Creating it blocks, and raises if the job cannot be read."""

    @property
    def cursor(self) -> Any:
        """JSON with which the client of another process continues."""
        ...

    def look(self) -> JobStatus:
        """Copy the new output, and return the state of the job. Blocks."""
        ...

    def close(self) -> str | None:
        """Disconnect. Never raises. Returns what `Backend.release` returns."""
        ...


class AttachedJob:
    """Shows one job. `Job.options` name the job, so the handle is empty. Subclasses have an `adopt`."""

    poll_interval_s: ClassVar[float] = 2.0

    def __init__(
        self, connect: Callable[[Job, RunFolder, Any], JobClient], end: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """`connect` takes the cursor of an earlier client, or None. `end` takes the options."""
        self._connect, self._end = connect, end
        self._client: JobClient | None = None
        self._ended_since: float | None = None

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        return []

    def detect(self) -> dict[str, Any]:
        return {}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        return {}

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        return {}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        return {}  # this backend starts nothing, so a second submission is harmless

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        if self._client is None:
            try:
                self._client = self._connect(job, folder, cursor)
            except Exception as error:
                return Poll(State.PENDING, RankState.all(job.world_size), cursor=cursor, detail=str(error))
        seen, cursor = self._client.look(), self._client.cursor
        if seen.end is not None:
            self._ended_since = self._ended_since or time.monotonic()
            if time.monotonic() - self._ended_since >= seen.end.rest_s:
                ranks = _ended(seen.ranks, seen.end)
                return Poll(seen.end.state, ranks, final=True, cursor=cursor, detail=seen.end.why)
        # The platform handles a failed rank: it may start another one in its place.
        return Poll(seen.state, seen.ranks, replaces=True, cursor=cursor, detail=seen.detail)

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        """End the job itself, as the user asked."""
        self._end(job.options)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        pass

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        return None if self._client is None else self._client.close()


def _ended(ranks: Sequence[RankState], end: JobEnd) -> tuple[RankState, ...]:
    """Return the ranks of an ended job. No service reports with which rank a failure began."""
    state = State.SUCCEEDED if end.state is State.SUCCEEDED else State.STOPPED
    return tuple(rank.over(state, end.at or time.time()) for rank in ranks)


def showing(stop_grace_s: float) -> Capabilities:
    """Return the capabilities of a backend that only shows a job."""
    return Capabilities(
        restarts=False, outlives=True, apart=True, visible=False, stacks=False, stop_grace_s=stop_grace_s
    )


def lag_s(over: float | None) -> float:
    """Return how long the last output of a job may still be missing, in seconds since its end was first seen.

    `over`: when the job ended.
    """
    return 0.0 if over is not None and time.time() - over > _LAG_S else _LAG_S


def seconds(stamp: str | None) -> float | None:
    """Convert a service's timestamp to seconds since the epoch.

    Accepts 2026-01-31T12:00:00Z, also with fractions of a second. Returns None if there is no timestamp.
    """
    try:
        return float(calendar.timegm(time.strptime(str(stamp)[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


class AttachedLog:
    """One file of the run's folder. Not for several threads at once.

    A new process passes the byte up to which it has a record of the writes. It writes from there on. The file
    may contain more bytes than that: they equal what the process writes again, and are skipped.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self._path, self.size = path, size

    def append(self, told: Sequence[tuple[float, bytes]]) -> None:
        """Append lines, each with its line end and the time of its printing. OSError passes through."""
        begin, place = self.size, self._path
        data = b"".join(text for _, text in told)
        self.size = begin + len(data)
        make_private(place.parent)
        fd = open_private(place, os.O_WRONLY)
        try:
            there = os.fstat(fd).st_size
            if there >= begin + len(data):
                return
            times = place.with_name(layout.TIMES) if place.name == layout.OUTPUT else None
            if times is not None and there == 0:
                # Write the index before the log: a supervisor would otherwise begin the index with its own
                # times.
                time_index.append(times, (0, told[0][0]))
            os.pwrite(fd, data[max(0, there - begin) :], max(there, begin))
        finally:
            os.close(fd)
        if times is not None:
            records, size = [], begin
            for number, (when, text) in enumerate(told):
                size += len(text)
                if size > there and (number + 1 == len(told) or told[number + 1][0] != when):
                    records.append((size, when))
            time_index.append(times, *records)
