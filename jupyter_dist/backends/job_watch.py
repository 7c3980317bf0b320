"""The jobs of a platform: the state of one, the errors of its requests, and the thread that polls it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..errors import DistError, LaunchError, Unreachable

__all__ = [
    "CredentialsExpired",
    "InUse",
    "JobView",
    "JobWatch",
    "NotThere",
    "StopAccepted",
    "first_active",
    "wait_or_stop",
]


class CredentialsExpired(LaunchError):
    """The credentials are missing or have expired. Running jobs are not affected."""


class NotThere(LaunchError):
    """The platform does not have the requested object."""


class InUse(LaunchError):
    """An object of that name exists already."""


class StopAccepted(DistError):
    """The platform accepted the stop of a job, and has not answered since."""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as its platform reports it. It is JSON in the run's handle."""

    called: str
    """The job's name in messages, such as `job run 7`."""
    page: str
    """The job's page in the platform's own console."""
    waits_for: str
    """What the job does before its hosts run, for messages."""
    ended: str | None = None
    """Why the job has ended, for messages. None: it has not."""
    ending: bool = False
    """Whether the job is about to end. It then serves no further attempt."""
    final: bool = False
    """Whether another job would fail for the same reason."""
    stopped: bool = False
    """Whether somebody has stopped the job on its page."""


_View = TypeVar("_View", bound=JobView)


def first_active(names: Iterable[str], look: Callable[[str], _View]) -> _View | None:
    """Return the first of the jobs with these names that has neither ended nor is about to end.

    `look` raises NotThere if there is no such job. The names follow from the run's. A pending submission
    therefore either yields the job of that name, or fails because its files are gone. Blocks.
    """
    for name in names:
        with contextlib.suppress(NotThere):
            seen = look(name)
            if seen.ended is None and not seen.ending:
                return seen
    return None


def wait_or_stop(
    look: Callable[[], _View], stop: Callable[[], None], wait_s: float, *, is_over: Callable[[_View], bool]
) -> _View:
    """Wait until a job ends by itself after its hosts were released, and `stop` it if it does not.

    A job whose state is unknown after `wait_s` is stopped too. Blocks. Raises StopAccepted, and what `look`
    and `stop` raise.
    """
    deadline, pause_s = time.monotonic() + wait_s, 0.2
    while True:
        late = time.monotonic() >= deadline
        try:
            seen = look()
        except DistError as error:
            if not late:
                raise
            stop()
            raise StopAccepted(str(error)) from error
        if is_over(seen):
            return seen
        if late:
            try:
                stop()
            except LaunchError:
                # A platform refuses to stop a job that has ended since the last look.
                if is_over(seen := look()):
                    return seen
                raise
            try:
                return look()
            except DistError as error:
                raise StopAccepted(str(error)) from error
        time.sleep(pause_s)
        pause_s = min(1.0, 1.5 * pause_s)


class JobWatch(Generic[_View]):
    """Polls a job in a thread of its own, so that a platform that does not answer blocks nothing else."""

    def __init__(self, look: Callable[[_View], _View], seen: _View, every_s: float) -> None:
        self.first = self.seen = seen
        self.trouble: str | None = None
        """Why the job's state is unknown at the moment. None: it is known."""
        self.signed_out = False
        """Whether the reason is that the credentials have expired. The job continues."""
        self._look, self._every_s = look, every_s
        self._closed = threading.Event()
        threading.Thread(target=self._work, name="jupyter-dist job watch", daemon=True).start()

    def close(self) -> None:
        """Stop polling. Repeatable."""
        self._closed.set()

    def _work(self) -> None:
        while self.seen.ended is None and not self._closed.wait(self._every_s):
            try:
                self.seen = self._look(self.seen)
                self.trouble, self.signed_out = None, False
            except DistError as error:
                self.trouble, self.signed_out = str(error), isinstance(error, CredentialsExpired)
                if isinstance(error, Unreachable):
                    self._closed.wait(self._every_s)  # the platform is busy, so poll half as often
