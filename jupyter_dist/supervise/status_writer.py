"""Keep state.json: the supervisor is its only writer, and its heartbeat."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time

from ..folder import RunFolder, write_json
from ..job import Status

__all__ = ["StatusWriter", "log"]

_HEARTBEAT_S = 2.0


def log(text: str) -> None:
    """One line in supervisor.log."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


class StatusWriter:
    """Holds the status, and writes it when it has changed and with each heartbeat."""

    def __init__(self, folder: RunFolder, status: Status) -> None:
        self._folder = folder
        self.status = status
        self._written = 0.0
        self._missed = 0
        self.unwritable: str | None = None
        """Why it could not be written, at some time."""

    @property
    def removed(self) -> bool:
        """The run's folder is gone, and not for a moment."""
        return self._missed > 1

    def update(self, **changes: object) -> None:
        """Write the status down, if these change it."""
        new = dataclasses.replace(self.status, **changes)  # type: ignore[arg-type]
        if new != self.status:
            self.status = new
            self.write()

    def note(self, **changes: object) -> None:
        """Have the next heartbeat write these."""
        self.status = dataclasses.replace(self.status, **changes)  # type: ignore[arg-type]

    def beat(self) -> None:
        """Write a sign of life, when it is time for one."""
        if time.monotonic() - self._written >= _HEARTBEAT_S:
            self.write()

    def write(self) -> None:
        self.note(heartbeat=time.time())
        self._written = time.monotonic()
        if self._is_being_removed():
            self._missed += 1
            return
        self._missed = 0
        # On a full disk the run goes on: the next state will be written when there is room.
        try:
            write_json(self._folder.state, self.status.to_json())
        except OSError as error:
            self.unwritable = error.strerror or str(error)
            with contextlib.suppress(OSError):
                log(f"cannot write {self._folder.state.name}: {error}")

    def _is_being_removed(self) -> bool:
        """Without its job.json no command finds the run. A file that is written while somebody removes the
        folder keeps the folder, with that file alone in it."""
        try:
            os.stat(self._folder.job)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False
