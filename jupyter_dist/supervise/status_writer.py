"""Writer of state.json. Only the supervisor writes this file, and its heartbeat is in the file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import TextIO

from ..folder import RunFolder, write_bytes
from ..job import RankState, Status
from ..worker.output.raw_stream import RawStream, as_text

__all__ = ["StatusWriter", "free_room", "keep_room", "log", "log_stream", "open_log"]

_HEARTBEAT_S = 2.0


def log(text: str) -> None:
    """Write a line to supervisor.log. On a full disk the line is lost."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


class StatusWriter:
    """The status of a run. The object writes the status at each change and with each heartbeat."""

    def __init__(self, folder: RunFolder, status: Status) -> None:
        self._folder = folder
        self.status = status
        self._written = 0.0
        self._missed = 0
        self._encoded_ranks: tuple[tuple[RankState, ...], bytes] = ((), b"[]")
        self.unwritable: str | None = None
        """Why the newest failed write failed; None if every write succeeded."""

    @property
    def removed(self) -> bool:
        """Return whether the run's folder was missing at the last two writes or more."""
        return self._missed > 1

    def update(self, **changes: object) -> None:
        """Change these fields, and write the status if it differs."""
        new = dataclasses.replace(self.status, **changes)  # type: ignore[arg-type]
        if new != self.status:
            self.status = new
            self.write()

    def note(self, **changes: object) -> None:
        """Change these fields without a write. The next heartbeat writes them."""
        self.status = dataclasses.replace(self.status, **changes)  # type: ignore[arg-type]

    def beat(self) -> None:
        """Write a heartbeat if one is due."""
        if time.monotonic() - self._written >= _HEARTBEAT_S:
            self.write()

    def write(self) -> None:
        self.note(heartbeat=time.time())
        self._written = time.monotonic()
        if self._is_being_removed():
            self._missed += 1
            return
        self._missed = 0
        # On a full disk the run continues, and a later write succeeds when there is space.
        try:
            write_bytes(self._folder.state, self._encoded())
        except OSError as error:
            self.unwritable = error.strerror or str(error)
            log(f"cannot write {self._folder.state.name}: {error}")

    def _encoded(self) -> bytes:
        """Return the status as JSON. The ranks are encoded again only if they have changed."""
        told = self.status.to_json()
        if self.status.ranks is not self._encoded_ranks[0]:
            self._encoded_ranks = self.status.ranks, json.dumps(told["ranks"]).encode()
        return json.dumps({**told, "ranks": []}).encode().removesuffix(b"[]}") + self._encoded_ranks[1] + b"}"

    def _is_being_removed(self) -> bool:
        """Return whether somebody is removing the run's folder: its job.json is missing then.

        A write during the removal would leave a folder with that file alone in it.
        """
        try:
            os.stat(self._folder.job)
        except OSError as error:
            return isinstance(error, FileNotFoundError)
        return False


def keep_room(folder: RunFolder, world_size: int) -> None:
    """Reserve disk space for the run's final state. Does nothing if the disk is full already."""
    with contextlib.suppress(OSError):
        write_bytes(folder.spare, bytes(65_536 + 1024 * world_size))


def free_room(folder: RunFolder) -> None:
    """Free the reserved disk space, before the final state is written."""
    with contextlib.suppress(OSError):
        folder.spare.unlink()


def open_log(path: Path) -> None:
    """Redirect the output of this process to a log."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    os.close(null)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is not _streams.get(fd):  # a session's supervisor opens one log after another
            _streams[fd] = log_stream(fd)
            setattr(sys, name, _streams[fd])


def log_stream(fd: int) -> TextIO:
    """Return a stream that writes each line to a log at once, and never raises OSError.

    On a full disk the run continues and lines are lost. The end of a run must not depend on its log.
    """
    return as_text(_Log(fd))


class _Log(RawStream):
    def put(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            super().put(data)


_streams: dict[int, TextIO] = {}
