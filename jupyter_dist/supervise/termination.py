"""Termination of an attempt's ranks: SIGTERM, then SIGKILL after the grace time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..job import State
from .backend_calls import Caller, Failure
from .retry import RetriedCall
from .status_writer import log

__all__ = ["Ending", "Termination"]


class Termination:
    """The two calls of `stop`, for SIGTERM and SIGKILL. The kill does not wait for a pending SIGTERM call."""

    def __init__(self, caller: Caller, grace_s: float) -> None:
        self._caller = caller
        self._generation = caller.generation
        self._term, self._kill = (RetriedCall(caller, "stop", grace_s) for _ in range(2))

    @property
    def under_way(self) -> bool:
        return self._term.under_way or self._kill.under_way

    @property
    def lines(self) -> tuple[RetriedCall, ...]:
        return self._term, self._kill

    def turn(self, ending: Ending, handle: Mapping[str, Any], now: float) -> bool:
        """Make the calls that are due, and process the results. Returns whether a call was delivered."""
        self._tell_a_new_object(ending, handle)
        if ending.kill_at is not None and now >= ending.kill_at:
            if not ending.killed and self._kill.ready(now):
                ending.termed_at = ending.termed_at or time.time()
                self._kill.begin(handle=handle, kill=True)
        elif now >= ending.term_at and ending.kill_at is None and self._term.ready(now):
            if ending.termed_at is None:
                log(f"ending the ranks: {ending.reason}")
                ending.termed_at = time.time()
            self._term.begin(handle=handle, kill=False)
        return self._take(ending, now)

    def _tell_a_new_object(self, ending: Ending, handle: Mapping[str, Any]) -> None:
        """Repeat the signal to a restarted backend process, which does not know of the earlier signal."""
        if self._generation == self._caller.generation:
            return
        self._generation = self._caller.generation
        if ending.killed:
            ending.killed = False
        elif ending.kill_at is not None and not self._term.under_way:
            self._term.begin(handle=handle, kill=False)

    def _take(self, ending: Ending, now: float) -> bool:
        delivered = False
        term, kill = self._term.take(now), self._kill.take(now)
        for call in (term, kill):
            if call is not None and call.failure is not None:
                log(f"the backend's `stop` failed: {call.failure}\n{call.failure.trace}")
        if term is not None and term.failure is None:
            ending.delivered(now)
            delivered = True
        elif term is not None and self._term.exhausted(now):
            assert term.failure is not None
            if not term.failure.may_pass:
                ending.hurry(now)
        if kill is not None and kill.failure is None:
            ending.killed = delivered = True
        return delivered

    def hopeless(self, ending: Ending, poll: RetriedCall, now: float) -> Failure | None:
        """Return why the supervisor cannot learn whether the ranks end; None while it can."""
        if self._kill.exhausted(now):
            return self._kill.failure
        if self._term.exhausted(now) and ending.kill_at is None:
            return self._term.failure
        tried = ending.killed or any(line.failure is not None for line in self.lines)
        return poll.failure if poll.exhausted(now) and tried else None


class Ending:
    """Plan of an attempt's end: SIGTERM to all ranks, and SIGKILL after a grace time.

    All times except `termed_at` are by the monotonic clock.
    """

    def __init__(
        self,
        state: State,
        reason: str,
        term_at: float,
        grace_s: float,
        *,
        of_rank: bool = False,
        of_backend: bool = False,
        stacks: bool = False,
    ) -> None:
        self.state, self.reason = state, reason
        self.of_rank = of_rank
        """Whether a rank's failure is the reason. Which rank failed first is clear when all have ended."""
        self.of_backend = of_backend
        """Whether the backend's failure is the reason. Another attempt would fail too."""
        self.stacks = stacks
        """Whether the ranks write their stacks before SIGTERM."""
        self.term_at, self._grace_s = term_at, grace_s
        self.kill_at: float | None = None
        """When SIGKILL is due. The grace time begins when a backend, fast or slow, has delivered SIGTERM."""
        self.termed_at: float | None = None
        """When SIGTERM was sent, by the clock of files (seconds since the epoch)."""
        self.killed = False
        """Whether SIGKILL was delivered."""

    def delivered(self, now: float) -> None:
        """Start the grace time: the backend has delivered SIGTERM."""
        if self.kill_at is None:
            self.kill_at = now + self._grace_s

    def hurry(self, now: float) -> Ending:
        """Skip the rest of the grace time."""
        self.kill_at = now if self.kill_at is None else min(self.kill_at, now)
        return self
