"""External causes of a run's end: requests, a signal, --timeout, a removed run folder."""

from __future__ import annotations

import os
import time

from ..folder import RunFolder
from ..job import Job, State, Status
from .termination import Ending, Grace

__all__ = ["Requests"]

_STACKS_TAKE_S = 0.5
"""The longest wait for stacks. Ranks of this machine need milliseconds. Over a link it takes a round trip."""


class Requests:
    """Requests of one run. The supervisor checks them in each turn of its loop.

    Durations are by the monotonic clock.
    """

    def __init__(self, folder: RunFolder, job: Job) -> None:
        self._folder, self._job = folder, job
        self._stacks_seen: float | None = None
        self._deadline: float | None = None
        self._held: float | None = None
        """When the countdown was last stopped; None while it runs."""
        self.held_s = 0.0
        """How long the countdown has stood still so far, also under previous supervisors."""
        self.terminated = False
        """Whether the supervisor has received SIGTERM."""
        self.removed = False
        """Whether the run's folder was removed. Users can neither see nor stop such a run."""

    def terminate(self) -> None:
        self.terminated = True

    def begin(self, started: float) -> None:
        """Start the countdown of --timeout.

        `started`: when the first rank began, in seconds since the epoch by the clock of files.
        """
        if self._deadline is None and self._job.timeout_s is not None:
            gone_by = max(0.0, time.time() - started - self.held_s)
            self._deadline = time.monotonic() + self._job.timeout_s - gone_by

    def resume(self, was: Status) -> None:
        """Continue the countdown of a previous supervisor. `was`: the status that it has left."""
        self.held_s = was.held_s + (max(0.0, time.time() - was.heartbeat) if was.waits else 0.0)
        if was.started is not None:
            self.begin(was.started)

    def hold(self, now: float, *, waiting: bool) -> None:
        """Stop the countdown of --timeout while a rank waits for its user. Call it in each turn."""
        if self._held is not None:
            self.held_s += now - self._held
            if self._deadline is not None:
                self._deadline += now - self._held
        self._held = now if waiting else None

    def asked(self, name: str) -> bool:
        """Return whether a user made this request. A request is never withdrawn."""
        return self.made(name) is not None

    def asked_for_stacks(self) -> bool:
        """Return whether a user has asked for stacks since the last call."""
        when = self.made("stacks")
        new = when is not None and when != self._stacks_seen
        self._stacks_seen = when
        return new

    def made(self, name: str) -> float | None:
        """Return when a user last made this request, by the clock of files; None if nobody has made it."""
        try:
            return os.stat(self._folder.requests / name).st_mtime
        except OSError:
            return None

    def stopped(self) -> bool:
        return self.terminated or any(map(self.asked, ("interrupt", "stop", "kill")))

    def is_late(self, now: float) -> bool:
        """Return whether the run has exceeded --timeout."""
        return self._deadline is not None and self._held is None and now >= self._deadline

    def hasten(self, ending: Ending, now: float) -> None:
        """Shorten an end that has begun, if a user has asked for that since."""
        if self.asked("kill"):
            ending.hurry(now)
        elif self.asked("stop"):
            ending.end_interrupt(now)

    def _why(self, name: str, otherwise: str) -> str:
        """Return the reason in the request, if any. A tuning run writes a reason when it ends a trial."""
        try:
            text = (self._folder.requests / name).read_text("utf-8", "replace")
        except OSError:
            return otherwise
        return " ".join(text.split())[:200] or otherwise

    def why_end(self, now: float, grace: Grace, *, hangs: bool) -> Ending | None:
        """Return how to end the attempt; None if nothing asks for its end.

        `hangs`: the ranks run, and have written nothing for a while. The user will ask where they were, which
        only their stacks show, before the first signal.
        """
        at = now + _STACKS_TAKE_S if hangs else now
        if self.asked("kill"):
            return Ending(State.STOPPED, self._why("kill", "killed by the user"), now, 0.0).hurry(now)
        if self.asked("stop"):
            why = self._why("stop", "stopped by the user")
            return Ending(State.STOPPED, why, at, grace.after_term_s, stacks=hangs)
        if self.asked("interrupt"):
            return Ending(
                State.STOPPED,
                "interrupted by the user",
                at,
                grace.after_term_s,
                stacks=hangs,
                interrupt_s=grace.after_interrupt_s,
            )
        if self.terminated:
            return Ending(State.STOPPED, "the supervisor was told to end", now, grace.after_term_s)
        if self.removed:
            return Ending(State.STOPPED, "the run's folder was removed", now, grace.after_term_s)
        if self.is_late(now):
            reason = f"not done within --timeout {self._job.timeout_s:g} s"
            return Ending(State.FAILED, reason, now + _STACKS_TAKE_S, grace.after_term_s, stacks=True)
        return None
