"""Stop a run: the one way in which commands, views and Python ask for its end."""

from __future__ import annotations

import time

from ..errors import DistError
from ..folder import RunFolder
from ..job import State
from ..launch import submission
from ..record import reader

__all__ = ["stop"]

_PAUSE_S = 0.03


def stop(folder: RunFolder, *, kill: bool = False, wait_s: float = 0.0) -> State:
    """Ask the run's supervisor to end the run, and wait `wait_s` for the end; returns the state after that.

    Ranks that have outlived their supervisor get a new one first, which ends them; that takes seconds.
    `kill` leaves the ranks no time to write. Repeatable: a run that has ended stays as it is.
    Raises DistError when the run cannot be asked, LaunchError when no new supervisor comes up.
    """
    submission.resume(folder)
    now = reader.status(folder).state
    if now.ended:
        return now
    try:
        folder.request("kill" if kill else "stop")
    except OSError as error:
        raise DistError(f"run {folder.id} cannot be asked to stop: {error.strerror or error}") from error
    deadline = time.monotonic() + wait_s
    while not now.ended and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        now = reader.status(folder).state
    return now
