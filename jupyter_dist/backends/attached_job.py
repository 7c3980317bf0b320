"""The shared part of backends that only show a job that somebody else has started."""

from __future__ import annotations

import calendar
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..folder import RunFolder, make_private, open_private
from ..job import Job
from ..worker import layout
from ..worker.output import time_index
from .interface import Handle

__all__ = ["AttachedJob", "AttachedLog", "seconds"]


class AttachedJob:
    """A job of somebody else. The handle is the known ranks and the options."""

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        return []

    def detect(self) -> dict[str, Any]:
        return {}

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        return {"ranks": job.world_size, **job.options}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        return self.submit(job, folder, attempt)  # this backend starts nothing, so a second call is harmless

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        pass


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
