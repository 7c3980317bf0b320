"""Stop a run: how commands and Python ask for its end and wait, and how views ask without waiting."""

from __future__ import annotations

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
_AT_ONCE_S = 0.3
"""What a new supervisor cannot even begin with, such as a Python that is gone, is known by then."""


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
    _request(folder, kill)
    deadline = time.monotonic() + wait_s
    while not now.ended and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        now = reader.status(folder).state
    return now


def ask_to_stop(folder: RunFolder, *, kill: bool = False) -> State:
    """Ask for the end of the run and return within half a second, with the state until then.

    An unwatched run gets its new supervisor meanwhile, from a thread of ours: whoever asks for a view has
    other views to serve. The request lies in the run's folder, and is the first that the supervisor sees.
    Repeatable. Raises DistError when the run cannot be asked, or when the supervisor that an earlier call
    began to start did not come up; the call after that one tries again.
    """
    now = reader.status(folder).state
    if now.ended:
        return now
    _request(folder, kill)
    if now is State.UNWATCHED:
        _taken_on(folder)
    return now


def _request(folder: RunFolder, kill: bool) -> None:
    try:
        folder.request("kill" if kill else "stop")
    except OSError as error:
        raise DistError(f"run {folder.id} cannot be asked to stop: {error.strerror or error}") from error


class _TakingOn:
    """A new supervisor of an unwatched run, on its way up."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._start, name="jupyter-dist-resume", daemon=True)
        self.thread.start()

    def is_done(self) -> bool:
        """Whether the supervisor came up: unwatched again, the run needs another one."""
        return not self.thread.is_alive() and self.error is None

    def _start(self) -> None:
        try:
            submission.resume(self._folder)
        except Exception as error:  # told by whoever asks next
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
