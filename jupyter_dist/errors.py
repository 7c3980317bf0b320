"""Errors of jupyter-dist, as a tree.

DistError
├── InputError            wrong flags, names or numbers; nothing was started
│   ├── UnknownBackend    no backend has this name; the message lists the backends
│   ├── MissingEngine     the backend's package is not installed; the message names the package
│   ├── NameTaken         something of this name already exists
│   ├── Busy              the requested resources exist, but others use them now
│   └── BrokenBackend     the backend is installed, but its code fails at load or in a call
├── CaptureError          the cell, or a name it uses, cannot be sent to the ranks; nothing was started
├── LaunchError           the set-up of the run folder or the supervisor failed; nothing is left running
├── RunNotFound           no run folder with that id
├── Unreachable          a machine or service does not answer now; jupyter-dist retries such calls
├── UntrustedFile         another user owns a pickle, or could have written it; it is never loaded
├── RunFailed             a rank failed; `.run` is the run, and the text begins with the root cause
├── RunStopped            the run was stopped before its end; `.run` is the run
└── ResultError           a rank could not send its result; the text has its repr
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
    "NameTaken",
    "ResultError",
    "RunFailed",
    "RunNotFound",
    "RunStopped",
    "UnknownBackend",
    "Unreachable",
    "UntrustedFile",
]


class DistError(Exception):
    """Base of every error that jupyter-dist raises on purpose. Its text is for the user."""

    def _render_traceback_(self) -> list[str]:
        # IPython calls this method for the traceback. The result is only the message,
        # because the frames between the cell and this line are not the user's code.
        return [f"{type(self).__name__}: {self}"]


class InputError(DistError):
    """A flag, name or number is not valid. Nothing was started."""

    field: str | None = None
    """The field of a form that must be corrected."""


class UnknownBackend(InputError):
    """No backend has this name."""


class MissingEngine(InputError):
    """The backend exists but its engine is not installed."""


class NameTaken(InputError):
    """Something of this name already exists."""

    field = "name"


class Busy(InputError):
    """The requested resources exist, but others use them now. The same request may succeed later."""


class BrokenBackend(InputError):
    """The backend is installed, but its own code fails when it is loaded or lists its resources."""


class CaptureError(DistError):
    """The cell, or a name it uses, cannot be sent to the ranks. Nothing was started."""


class LaunchError(DistError):
    """The run folder could not be written or the supervisor did not start. Nothing is left running."""


class RunNotFound(DistError):
    """No run has that id."""


class Unreachable(DistError):
    """A machine or a service does not answer now. The same call may succeed later."""


class UntrustedFile(DistError):
    """The owner or the mode of a pickle shows that somebody else could have written it."""


class _EndedRun(Protocol):
    """Interface of an error's `run`, which is a `jupyter_dist.Run`. Only type checkers need this class."""

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
        """Return the text of the view. A run that was stopped or exceeded --timeout has no traceback."""
        failed = self.run is not None and any(error.text for error in self.run.errors)
        return "Its traceback and log are" if failed else "Its log is"


class RunFailed(_RunError):
    """At least one rank failed. `run` is the rank's run."""


class RunStopped(_RunError):
    """The run was stopped before it ended by itself. `run` is the run."""


class ResultError(DistError):
    """A rank's result is not available: it could not be pickled or unpickled."""
