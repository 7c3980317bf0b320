"""Termination of an attempt's ranks: SIGINT if asked for, SIGTERM, then SIGKILL, with times to save."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..backends.interface import Capabilities
from ..folder import RunFolder
from ..job import Job, State
from ..worker.boot import TO_SAVE_S
from .backend_calls import Caller, Failure
from .retry import RetriedCall
from .status_writer import log

__all__ = ["Ending", "Grace", "Termination"]


class Grace:
    """How long the ranks of an attempt may take to end."""

    def __init__(
        self, job: Job, able: Capabilities, folder: RunFolder, attempt: int, *, running: bool
    ) -> None:
        self._job, self._able, self._folder, self._attempt = job, able, folder, attempt
        self._running = running

    @property
    def after_term_s(self) -> float:
        """Return the seconds from SIGTERM to SIGKILL. Looks for ranks with their own handler."""
        if self._job.stop_grace_s is not None:
            return self._job.stop_grace_s
        wait_s = self._able.stop_grace_s
        if wait_s < TO_SAVE_S and any(
            self._folder.rank(self._attempt, rank).sigterm_handler.exists()
            for rank in self._folder.ranks(self._attempt)
        ):
            return TO_SAVE_S
        return wait_s

    @property
    def after_interrupt_s(self) -> float | None:
        """Return the seconds from KeyboardInterrupt to SIGTERM; None: SIGTERM comes first.

        Only ranks that run can be interrupted, and only some backends can do it.
        """
        if not (self._able.interrupts and self._running):
            return None
        if self._job.stop_grace_s is not None:
            return self._job.stop_grace_s
        return max(TO_SAVE_S, self._able.stop_grace_s)


class Termination:
    """The two calls of `stop`, for SIGTERM and SIGKILL. The kill does not wait for a pending SIGTERM call."""

    def __init__(self, caller: Caller, grace_s: float, clock: Callable[[], float]) -> None:
        """`clock`: the clock of the run's files; see clock_of_files."""
        self._caller, self._clock = caller, clock
        self._generation = caller.generation
        self._term, self._kill = (RetriedCall(caller, "stop", grace_s) for _ in range(2))
        self._interrupt = RetriedCall(caller, "ask", grace_s)

    @property
    def under_way(self) -> bool:
        return any(line.under_way for line in (self._interrupt, self._term, self._kill))

    @property
    def lines(self) -> tuple[RetriedCall, ...]:
        return self._term, self._kill

    def turn(self, ending: Ending, handle: Mapping[str, Any], now: float) -> bool:
        """Make the calls that are due, and process the results. Returns whether a call was delivered."""
        self._tell_a_new_object(ending, handle)
        if ending.kill_at is not None and now >= ending.kill_at:
            if not ending.killed and self._kill.ready(now):
                ending.termed_at = ending.termed_at or self._clock()
                self._kill.begin(handle=handle, kill=True)
        elif ending.interrupt_s is not None and ending.termed_at is None and now >= ending.term_at:
            log(f"interrupting the ranks: {ending.reason}")
            ending.termed_at, ending.term_at = self._clock(), math.inf
            self._interrupt.begin(handle=handle, rank=None, verb="interrupt")
        elif now >= ending.term_at and ending.kill_at is None and self._term.ready(now):
            if ending.termed_at is None:
                log(f"ending the ranks: {ending.reason}")
                ending.termed_at = self._clock()
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
        interrupt = self._interrupt.take(now)
        if interrupt is not None:
            if interrupt.failure is not None:
                log(f"the backend's `ask` failed: {interrupt.failure}\n{interrupt.failure.trace}")
            ending.interrupted(now, delivered=interrupt.failure is None)
            delivered = interrupt.failure is None
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
        interrupt_s: float | None = None,
    ) -> None:
        self.state, self.reason = state, reason
        self.of_rank = of_rank
        """Whether a rank's failure is the reason. Which rank failed first is clear when all have ended."""
        self.of_backend = of_backend
        """Whether the backend's failure is the reason. Another attempt would fail too."""
        self.stacks = stacks
        """Whether the ranks write their stacks before SIGTERM."""
        self.interrupt_s = interrupt_s
        """Seconds from KeyboardInterrupt to SIGTERM; None: the ranks get SIGTERM first."""
        self.until: str | None = None
        """The time of day until which the ranks may save."""
        self.term_at, self._grace_s = term_at, grace_s
        self.kill_at: float | None = None
        """When SIGKILL is due. The grace time begins when a backend, fast or slow, has delivered SIGTERM."""
        self.termed_at: float | None = None
        """When the first signal was sent, by the clock of files (seconds since the epoch)."""
        self.killed = False
        """Whether SIGKILL was delivered."""

    @property
    def waits_for_stacks(self) -> bool:
        """Whether only the ranks' stacks delay the first signal. A failed rank gives others time to fail."""
        return self.stacks and not self.of_rank and self.termed_at is None

    def delivered(self, now: float) -> None:
        """Start the grace time: the backend has delivered SIGTERM."""
        if self.kill_at is None:
            self.kill_at = now + self._grace_s
            self.until = _time_of_day(self._grace_s)

    def interrupted(self, now: float, *, delivered: bool) -> None:
        """Start the time until SIGTERM. It is over at once if the backend could not interrupt the ranks."""
        if self.term_at == math.inf:
            wait_s = self.interrupt_s if delivered and self.interrupt_s is not None else 0.0
            self.term_at, self.until = now + wait_s, _time_of_day(wait_s)

    def end_interrupt(self, now: float) -> None:
        """Skip the rest of the time until SIGTERM, if the ranks were interrupted."""
        if self.interrupt_s is not None:
            self.term_at = min(self.term_at, now)

    def hurry(self, now: float) -> Ending:
        """Skip the rest of the grace time."""
        self.kill_at = now if self.kill_at is None else min(self.kill_at, now)
        return self


def _time_of_day(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time.time() + seconds))
