"""What asks for a run's end from outside: requests, a signal, --timeout, the loss of its folder."""

from __future__ import annotations

import os
import time

from ..folder import RunFolder
from ..job import Job, State
from .termination import Ending

__all__ = ["Requests"]

_STACKS_TAKE_S = 0.5
"""On this machine they take some milliseconds; over a link one round trip."""


class Requests:
    """Looked at in each turn of the supervisor. Durations are by the clock that nobody sets."""

    def __init__(self, folder: RunFolder, job: Job, stop_grace_s: float) -> None:
        self._folder, self._job, self._grace_s = folder, job, stop_grace_s
        self._stacks_seen: float | None = None
        self._deadline: float | None = None
        self.terminated = False
        """The supervisor was sent SIGTERM."""
        self.removed = False
        """The run's folder is gone: nobody sees the run any more, nor can stop it."""

    def terminate(self) -> None:
        self.terminated = True

    def begin(self, started: float) -> None:
        """The first rank has begun, at this time of the clock of files: --timeout counts from there."""
        if self._deadline is None and self._job.timeout_s is not None:
            gone_by = max(0.0, time.time() - started)
            self._deadline = time.monotonic() + self._job.timeout_s - gone_by

    def asked(self, name: str) -> bool:
        """Whether there is this request; once made, it stays."""
        return self._made(name) is not None

    def asked_for_stacks(self) -> bool:
        """Whether stacks were asked for, again, since the last call."""
        when = self._made("stacks")
        new = when is not None and when != self._stacks_seen
        self._stacks_seen = when
        return new

    def _made(self, name: str) -> float | None:
        try:
            return os.stat(self._folder.requests / name).st_mtime
        except OSError:
            return None

    def stopped(self) -> bool:
        return self.terminated or self.asked("stop") or self.asked("kill")

    def _why(self, name: str, otherwise: str) -> str:
        """What the request says of its reason, as a tuning run's does that ends a trial."""
        try:
            text = (self._folder.requests / name).read_text("utf-8", "replace")
        except OSError:
            return otherwise
        return " ".join(text.split())[:200] or otherwise

    def why_end(self, now: float) -> Ending | None:
        """How the attempt is to be ended, where anything asks for that."""
        if self.asked("kill"):
            return Ending(State.STOPPED, self._why("kill", "killed by the user"), now, 0.0).hurry(now)
        if self.asked("stop"):
            return Ending(State.STOPPED, self._why("stop", "stopped by the user"), now, self._grace_s)
        if self.terminated:
            return Ending(State.STOPPED, "the supervisor was told to end", now, self._grace_s)
        if self.removed:
            return Ending(State.STOPPED, "the run's folder was removed", now, self._grace_s)
        if self._deadline is not None and now >= self._deadline:
            reason = f"not done within --timeout {self._job.timeout_s:g} s"
            # Where they were is what one asks then, and the next moment nobody can tell.
            return Ending(State.FAILED, reason, now + _STACKS_TAKE_S, self._grace_s, stacks=True)
        return None
