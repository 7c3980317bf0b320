"""What is known of a platform's job: how it stands, and a watch that asks the platform again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..errors import DistError, LaunchError, Unreachable

__all__ = ["CredentialsExpired", "JobView", "JobWatch", "StopAccepted", "wait_or_stop"]


class CredentialsExpired(LaunchError):
    """The credentials are missing or have expired. Running jobs are not affected."""


class StopAccepted(DistError):
    """The platform accepted the stop of a job, and has not answered since."""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job as its platform reports it. It is JSON in the run's handle."""

    called: str
    """In a line for the user, such as `job run 7`."""
    page: str
    """Its page in the platform's own console."""
    waits_for: str
    """What it does before its hosts are there, for the user."""
    ended: str | None = None
    """Why it is over, for the user; None while it is not."""
    ending: bool = False
    """Whether it is about to be over, and serves no other attempt."""
    final: bool = False
    """Whether another one would end the same way."""
    stopped: bool = False
    """Whether somebody has ended it on its page."""


_View = TypeVar("_View", bound=JobView)


def wait_or_stop(
    look: Callable[[], _View], stop: Callable[[], None], wait_s: float, *, is_over: Callable[[_View], bool]
) -> _View:
    """Wait until a job ends by itself, as it does once its hosts are released, and `stop` it where that does
    not come, also one that cannot be looked after then. Blocks; raises StopAccepted, and what both raise."""
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
            stop()
            try:
                return look()
            except DistError as error:
                raise StopAccepted(str(error)) from error
        time.sleep(pause_s)
        pause_s = min(1.0, 1.5 * pause_s)


class JobWatch(Generic[_View]):
    """Looks after a job in a thread of its own: a platform that does not answer hinders nobody else."""

    def __init__(self, look: Callable[[_View], _View], seen: _View, every_s: float) -> None:
        self.first = self.seen = seen
        self.trouble: str | None = None
        """Why nothing is known of it at the moment."""
        self.signed_out = False
        """Whether that is because the user's credentials are good no longer: the job goes on."""
        self._look, self._every_s = look, every_s
        self._closed = threading.Event()
        threading.Thread(target=self._work, name="jupyter-dist job watch", daemon=True).start()

    def close(self) -> None:
        """No more looks. Repeatable."""
        self._closed.set()

    def _work(self) -> None:
        while self.seen.ended is None and not self._closed.wait(self._every_s):
            try:
                self.seen = self._look(self.seen)
                self.trouble, self.signed_out = None, False
            except DistError as error:
                self.trouble, self.signed_out = str(error), isinstance(error, CredentialsExpired)
                if isinstance(error, Unreachable):
                    self._closed.wait(self._every_s)  # it is busy: half as often
