"""Stop of a run: with a wait for its end for commands and Python, and without a wait for views."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from ..errors import DistError
from ..folder import RunFolder
from ..job import State
from ..launch import submission
from ..record import reader

__all__ = ["ask_to_stop", "stop"]

_PAUSE_S = 0.03
_SAME_REQUEST_S = 1.0
_AT_ONCE_S = 0.3
"""Within this time, immediate failures of a new supervisor are known, such as a missing Python."""


def stop(folder: RunFolder, *, kill: bool = False, interrupt: bool = False, wait_s: float = 0.0) -> State:
    """Ask the run's supervisor to end the run, and wait `wait_s` for the end. Returns the state after that.

    If ranks have outlived their supervisor, a new supervisor starts first and ends them. That takes seconds.
    `kill` leaves the ranks no time to write. A second stop, a second later or more, kills as well.
    `interrupt` raises KeyboardInterrupt in the ranks first, if the backend can do that.
    Repeatable: a run that has ended stays as it is.
    Raises DistError if the run cannot be asked, and LaunchError if the new supervisor does not start.
    """
    submission.resume(folder)
    now = reader.status(folder).state
    if now.ended:
        return now
    _request(folder, kill, interrupt=interrupt)
    deadline = time.monotonic() + wait_s
    while not now.ended and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        now = reader.status(folder).state
    return now


def ask_to_stop(folder: RunFolder, *, kill: bool = False) -> State:
    """Ask for the end of the run. Returns within half a second, with the state before the request.

    For an unwatched run, a thread starts a new supervisor, so that the caller can serve other views
    meanwhile. The request is a file in the run's folder, and the new supervisor reads it first. Repeatable.
    Raises DistError if the run cannot be asked. Also raises DistError if an earlier call began to start a
    supervisor and it did not start. The next call then tries again.
    """
    now = reader.status(folder).state
    if now.ended:
        return now
    _request(folder, kill)
    if now is State.UNWATCHED:
        _taken_on(folder)
    return now


def _request(folder: RunFolder, kill: bool, *, interrupt: bool = False) -> None:
    before = _asked_at(folder)
    try:
        folder.request("kill" if kill else "interrupt" if interrupt else "stop")
        now = _asked_at(folder)
        if before is not None and now is not None and now - before > _SAME_REQUEST_S:
            folder.request("kill")
    except OSError as error:
        raise DistError(f"run {folder.id} cannot be asked to stop: {error.strerror or error}") from error


def _asked_at(folder: RunFolder) -> float | None:
    """Return when the run was last asked to stop, by the clock of the disk, which may be a server's.

    A second request kills the run. A double click, or a client's retry, is no second request.
    """
    try:
        return os.stat(folder.requests / "stop").st_mtime
    except OSError:
        return None


class _TakingOn:
    """Start of a new supervisor for an unwatched run, in a thread."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._start, name="jupyter-dist-resume", daemon=True)
        self.thread.start()

    def is_done(self) -> bool:
        """Return whether the supervisor has started. If the run is unwatched again, it needs another one."""
        return not self.thread.is_alive() and self.error is None

    def _start(self) -> None:
        try:
            submission.resume(self._folder)
        except Exception as error:  # the next call raises it
            self.error = error


_taking_on: dict[Path, _TakingOn] = {}
_lock = threading.Lock()


def _taken_on(folder: RunFolder) -> None:
    with _lock:
        known = _taking_on.get(folder.path)
        if known is None or known.is_done():
            known = _taking_on[folder.path] = _TakingOn(folder)
    known.thread.join(_AT_ONCE_S)
    if known.thread.is_alive():
        return
    with _lock:
        if _taking_on.get(folder.path) is known:
            del _taking_on[folder.path]
    if known.error is not None:
        raise known.error
