"""What can go wrong, as a tree.

DistError
├── InputError            bad flags, names, numbers; nothing was started
│   ├── UnknownBackend    no such backend; the message lists them
│   ├── MissingEngine     the backend's package is not installed; the message says what to install
│   ├── Busy              what was asked for is there, but others use it at the moment
│   └── BrokenBackend     the backend is installed, but its code fails when it is loaded or asked
├── CaptureError          the cell or a name it uses cannot travel; nothing was started
├── LaunchError           the run folder or the supervisor could not be set up; nothing is left running
├── RunNotFound           no run folder with that id
├── Unreachable          a machine or service does not answer at the moment; what waits for it is tried again
├── UntrustedFile         a pickle that another user owns or could have written; it is never loaded
├── RunFailed             a rank failed; `.run` holds the run, the text names the root cause first
├── RunStopped            the run was stopped before its end; `.run` holds the run
└── ResultError           a rank's result could not be sent back; the text holds its repr
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = [
    "BrokenBackend",
    "Busy",
    "CaptureError",
    "DistError",
    "InputError",
    "LaunchError",
    "MissingEngine",
    "ResultError",
    "RunFailed",
    "RunNotFound",
    "RunStopped",
    "UnknownBackend",
    "Unreachable",
    "UntrustedFile",
]


class DistError(Exception):
    """Base of every error that jupyter_dist raises on purpose; its text is meant for the user."""

    def _render_traceback_(self) -> list[str]:
        # IPython asks the exception for its traceback: ours is the message alone,
        # because the frames between the cell and this line are not the user's code.
        return [f"{type(self).__name__}: {self}"]


class InputError(DistError):
    """A flag, name or number that cannot be used. Nothing was started."""


class UnknownBackend(InputError):
    """No backend has that name."""


class MissingEngine(InputError):
    """The backend exists but its engine is not installed."""


class Busy(InputError):
    """What was asked for is there, but others use it at the moment. Later the same may succeed."""


class BrokenBackend(InputError):
    """The backend is installed, but its own code fails when it is loaded or asked what there is."""


class CaptureError(DistError):
    """The cell, or a name it uses, cannot be sent to the ranks. Nothing was started."""


class LaunchError(DistError):
    """The run folder could not be written or the supervisor did not start. Nothing is left running."""


class RunNotFound(DistError):
    """No run has that id."""


class Unreachable(DistError):
    """A machine or a service does not answer at the moment. The same call may succeed later."""


class UntrustedFile(DistError):
    """A pickle whose owner or mode would let somebody else have written it."""


class _EndedRun(Protocol):
    """What the `run` of an error has: it is a `jupyter_dist.Run`. Declared here for type checkers alone."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def job(self) -> Any: ...
    @property
    def results(self) -> Any: ...
    @property
    def metrics(self) -> Any: ...
    @property
    def errors(self) -> Sequence[Any]: ...
    def log(self, rank: int | None = None, attempt: int | None = None) -> str: ...
    def _story_is_shown(self) -> bool: ...


class _RunError(DistError):
    def __init__(self, message: str, run: _EndedRun | None = None) -> None:
        super().__init__(message)
        self.run = run

    def _render_traceback_(self) -> list[str]:
        if self.run is None or not self.run._story_is_shown():
            return super()._render_traceback_()
        first = str(self).partition("\n")[0]
        return [f"{type(self).__name__}: {first}", f"{self._shown()} in the view above."]

    def _shown(self) -> str:
        """What the view shows: a run that was stopped, or that took too long, has no traceback."""
        failed = self.run is not None and any(error.text for error in self.run.errors)
        return "Its traceback and log are" if failed else "Its log is"


class RunFailed(_RunError):
    """At least one rank failed. `run` is the run it happened in."""


class RunStopped(_RunError):
    """The run was stopped before it ended by itself. `run` is the run."""


class ResultError(DistError):
    """A rank's result cannot be had: it could not be pickled, or not be read back."""
