"""One attempt of a run: from the start of all ranks to the last rank's end, or to the backend's failure.

The supervisor calls `tick` in a loop, and `tick` never waits. `tick` makes the calls that are due and
processes the answers that arrived. Then `tick` changes the attempt's phase by the table in phases.py.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

from ..backends.interface import Handle
from ..job import Poll, RankState, State
from ..processes.leftovers import end_leftovers
from ..worker import layout
from .backend_calls import Failure
from .failure_reason import first_failed, why, why_again, why_failed
from .phases import Event, Phase, after
from .prompt_watch import PromptWatch, waiting
from .reported_errors import ReportedErrors, clock_of_files
from .retry import RetriedCall
from .run_context import Outcome, RunContext
from .stack_arrival import COLLECTIVES_S, StackArrival
from .stall_watch import StallWatch
from .status_writer import log
from .termination import Ending, Termination

__all__ = ["Attempt"]

_SUBMITTING_SHOWN_S = 2.0
_LIVELY_S, _SILENT_S = 2.0, 5.0
_NOT_AGAIN = "the values of --env are in no file"


class Attempt:
    """`handle`, `cursor`: from the previous supervisor. `searching`: that supervisor died during submit."""

    def __init__(
        self, context: RunContext, handle: Handle | None, *, cursor: Any = None, searching: bool = False
    ) -> None:
        self._context, self._writer = context, context.writer
        self.handle, self._cursor = handle, cursor
        self.phase = Phase.SUBMITTING if handle is None else Phase.PENDING
        self._may_submit = True
        if handle is None and searching:
            self.phase = Phase.SEARCHING
            self._may_submit = not context.job.env_names
        self.outcome: Outcome | None = None
        was = self._writer.status
        self._number, self._base = was.attempt, None if was.waits else was.reason
        self._indexer = self._context.indexer(self._number)
        self._errors = ReportedErrors(self._context.folder, self._number)
        self._prompts = PromptWatch(self._context.folder, self._number, waited=bool(was.waits))
        self._ending: Ending | None = None
        self._arrival: StackArrival | None = None
        self._active: float | None = None
        limit_s = context.job.stall_timeout_s
        self._stalls = None if limit_s is None else StallWatch(context.folder, limit_s, self._ask_for_stacks)
        self._indexed = self._poll_due = 0.0
        self._poll: Poll | None = None
        self._push = Termination(
            context.caller, context.grace_s, functools.partial(clock_of_files, context.folder)
        )
        self._submit, self._find, self._poll_call, self._ask = (
            RetriedCall(context.caller, name, context.grace_s) for name in ("submit", "find", "poll", "ask")
        )

    def tick(self, now: float, *, woken: bool) -> None:
        """Advance the attempt. `woken`: poll the backend at once, for example because a child has ended."""
        self._poll_due = 0.0 if woken else self._poll_due
        if self.phase in (Phase.SUBMITTING, Phase.WITHDRAWING):
            self._submit_or_wait(now)
        if self.phase in (Phase.SEARCHING, Phase.TRACING):
            self._look_for_it(now)
        if self.phase.submitted:
            self._look(now)
        if self.phase.over:
            return
        self._index(now)
        self._look_at_prompts(now)
        self._decide(now)
        if self.phase is Phase.ENDING:
            self._push_on(now)
        elif self.phase is Phase.RUNNING:
            self._look_for_stall(now)
        if self.phase.submitted and not self._ask.under_way and self._context.requests.asked_for_stacks():
            self._ask_for_stacks()
        self._take_ask(now)
        if not self.phase.over:
            self._show(now)

    def _go(self, event: Event) -> None:
        self.phase = after(self.phase, event)

    def _submit_or_wait(self, now: float) -> None:
        if self._submit.ready(now) and self.phase is Phase.SUBMITTING:
            self._submit.begin(attempt=self._number)
        began = self._submit.since()
        if self.phase is Phase.WITHDRAWING and began is not None:
            assert self._ending is not None
            hurried = self._ending.kill_at is not None
            if hurried or now - began > self._context.able.submit_limit_s:
                log("the submission is cut off")
                self._context.caller.renew()
        call = self._submit.take(now)
        if call is None:
            if self.phase is Phase.WITHDRAWING and not self._submit.under_way:
                self._nothing_runs()
        elif call.failure is None:
            self._has_handle(call.value)
        elif call.failure.told and not call.failure.may_pass:
            log(call.failure.text)
            self._ending = self._ending or Ending(State.FAILED, call.failure.text, now, 0.0)
            self._nothing_runs()
        else:
            if not call.failure.may_pass:
                self._backend_failed("submit", call.failure, now)
            self._go(Event.DOUBT)

    def _look_for_it(self, now: float) -> None:
        able = self._context.able
        if not (able.outlives or able.apart):
            # The ranks are processes of this machine: the run's id in their environment identifies them.
            end_leftovers(self._context.job.id)
            self._found_nothing(now)
            return
        if self._find.ready(now):
            self._find.begin(attempt=self._number)
        call = self._find.take(now)
        if call is None:
            return
        if call.failure is None:
            if call.value is not None:
                self._has_handle(call.value)
            else:
                self._found_nothing(now)
            return
        if not call.failure.may_pass:
            log(call.failure.trace)
        if self._find.exhausted(now):
            if self.phase is Phase.SEARCHING:
                self._backend_failed("find", call.failure, now)
            self._give_up(call.failure)

    def _found_nothing(self, now: float) -> None:
        if self.phase is Phase.SEARCHING and not self._may_submit:
            never = f"it was never started, and cannot be now: {_NOT_AGAIN}"
            self._end_with(Ending(State.FAILED, never, now, 0.0))
        if self.phase is Phase.SEARCHING:
            if self._submit.exhausted(now):
                assert self._submit.failure is not None
                self._backend_failed("submit", self._submit.failure, now)
            else:
                self._go(Event.NOTHING)
                return
        self._nothing_runs()

    def _has_handle(self, handle: Handle) -> None:
        self.handle = handle
        self._go(Event.HANDLE)
        if self._context.able.outlives:
            self._writer.update(handle=handle, submitting=None)

    def _look(self, now: float) -> None:
        self._begin_poll(now)
        call = self._poll_call.take(now)
        if call is not None and call.failure is None:
            self._take(call.value, now)
        elif call is not None:
            assert call.failure is not None
            if not call.failure.may_pass:
                self._backend_failed("poll", call.failure, now)
            elif self._poll_call.exhausted(now):
                reason = f"the backend has not answered for {self._context.grace_s:.0f} s ({call.failure})"
                self._end_with(
                    Ending(State.FAILED, reason, now, self._context.able.stop_grace_s, of_backend=True)
                )
        if self.phase is Phase.PENDING or (self.phase.submitted and self._lively):
            self._begin_poll(now)  # after a slow poll, the next one starts at once

    def _begin_poll(self, now: float) -> None:
        if now >= self._poll_due and self._poll_call.ready(now):
            self._poll_due = now + self._context.poll_interval_s
            self._poll_call.begin(handle=self.handle, cursor=self._cursor)

    def _take(self, poll: Poll, now: float) -> None:
        status = self._writer.status
        if poll.attempt is not None and poll.attempt > self._number:
            self._indexer.finish(time.time(), len(status.ranks))
            self._base = why_again(self._context.folder, status.ranks, self._number)
            self._number = poll.attempt
            log(self._base)
            self._context.make_attempt(self._number)
            self._writer.update(
                attempt=self._number, reason=self._base, ranks=RankState.all(self._context.job.world_size)
            )
            self._indexer = self._context.indexer(self._number)
            self._errors = ReportedErrors(self._context.folder, self._number)
            self._prompts = PromptWatch(self._context.folder, self._number)
        ranks = self._judged(poll)
        carrier = self._context.caller.pid
        self._context.guard.watch((*poll.pids, *(() if carrier is None else (carrier,))))
        changes: dict[str, Any] = {"ranks": ranks}
        if poll.has_begun and self.phase in (Phase.PENDING, Phase.ENDING):
            self._active, self._poll_due = now, 0.0  # the ranks write their first lines soon
            self._go(Event.BEGUN)
            # Starting many ranks takes a while: the run is not shorter than its ranks.
            first = min((rank.started for rank in ranks if rank.started is not None), default=time.time())
            started = status.started or min(first, time.time())
            self._context.requests.begin(started)
            changes |= {"state": State.RUNNING, "started": started}
        self._indexed = now
        if self._indexer.tick(time.time(), len(ranks)):
            self._active = now
            changes["stall"] = None
        self._cursor = poll.cursor
        if self._context.able.outlives:
            self._writer.note(cursor=poll.cursor)
        if poll.state.ended and self._context.ends_at_once:
            self._writer.note(**changes)
        else:
            self._writer.update(**changes)
        self._poll = poll
        if poll.state.ended:
            self._go(Event.ENDED)
            self._over(poll, ranks)

    @property
    def heard(self) -> tuple[int, float] | None:
        """Return a descriptor that reports new output, and a pause in seconds; see LogIndexWriter.heard."""
        return self._indexer.heard if self.phase is Phase.RUNNING else None

    def pause_s(self, turn_s: float, heard_turn_s: float) -> float:
        """Return the seconds until the next `tick`. `heard_turn_s`: while `heard` reports new output."""
        if self.heard is None:
            return min(turn_s, self._indexer.pause_s) if self._lively else turn_s
        return heard_turn_s if self._ending is None else turn_s

    @property
    def _lively(self) -> bool:
        return self._active is not None and time.monotonic() - self._active < _LIVELY_S

    def _index(self, now: float) -> None:
        """Index new output between two polls, so that views show a new line soon."""
        status = self._writer.status
        if (
            self.phase is Phase.RUNNING
            and self._indexed != now
            and self._indexer.tick(time.time(), len(status.ranks))
        ):
            self._active = now
            if status.stall is not None:
                self._writer.update(stall=None)

    def _look_at_prompts(self, now: float) -> None:
        """Look for ranks that wait for their user. Time limits stand still meanwhile."""
        self._prompts.look(now, self._writer.status.ranks if self.phase is Phase.RUNNING else ())
        self._context.requests.hold(now, waiting=self._prompts.holds)
        if self._prompts.waits:
            self._active = now
            self._writer.note(held_s=self._context.requests.held_s)
            self._writer.update(stall=None)

    def _judged(self, poll: Poll) -> tuple[RankState, ...]:
        """Return the poll's ranks. A rank counts as failed if it reported an error before SIGTERM."""
        told_at = None if self._ending is None else self._ending.termed_at
        if told_at is None:
            return poll.ranks
        return tuple(
            dataclasses.replace(rank, state=State.FAILED)
            if rank.state is State.STOPPED and self._errors.has(rank.rank, told_at)
            else rank
            for rank in poll.ranks
        )

    def _decide(self, now: float) -> None:
        if self._ending is not None:
            self._context.requests.hasten(self._ending, now)
            return
        grace = self._context.grace(self._number, running=self.phase is Phase.RUNNING)
        hangs = self.phase is Phase.RUNNING and self._active is not None and now - self._active > _SILENT_S
        ending = self._context.requests.why_end(now, grace, hangs=hangs) or self._why_end(now)
        if ending is not None:
            if ending.stacks and self.phase is Phase.RUNNING:
                # Before the request: a rank of this machine can answer at once.
                self._arrival = StackArrival(self._context.folder, self._number, self._writer.status.ranks)
                self._ask_for_stacks()
            self._end_with(ending)

    def _why_end(self, now: float) -> Ending | None:
        """Return how a rank's failure ends the other ranks; None if the launcher replaces failed ranks."""
        if self._poll is None or self._poll.replaces or not self.phase.submitted:
            return None
        ranks = self._writer.status.ranks
        failed = first_failed(ranks) or self._errors.first(ranks)
        if failed is None:
            return None
        reason, able = why(self._context.folder, failed, self._number), self._context.able
        grace_s = able.stop_grace_s if self._errors.of_all(ranks) else able.failure_grace_s
        return Ending(State.FAILED, reason, now + able.settle_s, grace_s, of_rank=True, stacks=True)

    def _end_with(self, ending: Ending) -> None:
        if self._ending is None:
            self._ending = ending
            self._go(Event.END)

    def _backend_failed(self, name: str, failure: Failure, now: float) -> None:
        log(f"the backend's `{name}` failed: {failure}\n{failure.trace}")
        reason = f"the backend's `{name}` failed: {failure} (see {layout.SUPERVISOR_LOG})"
        self._end_with(Ending(State.FAILED, reason, now, self._context.able.stop_grace_s, of_backend=True))

    def _push_on(self, now: float) -> None:
        assert self._ending is not None
        assert self.handle is not None
        if self._arrival is not None and self._ending.waits_for_stacks and self._arrival.complete():
            self._ending.term_at, self._arrival = min(now + COLLECTIVES_S, self._ending.term_at), None
        if self._push.turn(self._ending, self.handle, now):
            self._poll_due = 0.0
        if (hopeless := self._push.hopeless(self._ending, self._poll_call, now)) is not None:
            self._give_up(hopeless)

    def _look_for_stall(self, now: float) -> None:
        if self._stalls is not None and self._active is not None:
            self._writer.update(stall=self._stalls.look(self._active, now, self._writer.status))

    def _ask_for_stacks(self) -> None:
        if self._context.able.stacks and not self._ask.under_way:
            self._ask.begin(handle=self.handle, rank=None, verb="stacks")

    def _take_ask(self, now: float) -> None:
        call = self._ask.take(now)
        if call is not None and call.failure is not None:
            # The stacks that a user asked for are missing, but the training continues.
            log(f"the backend's `ask` failed: {call.failure}\n{call.failure.trace}")

    def _show(self, now: float) -> None:
        """Write the line under the cell, which states what the run waits for."""
        ending, poll = self._ending, self._poll
        if ending is None or (ending.of_rank and ending.termed_at is None):
            shown = waiting(self._prompts.waits) or (poll and poll.detail) or self._base
            since = self._submit.since()
            if since is not None and now - since > _SUBMITTING_SHOWN_S:
                shown = "the backend is being asked to start the ranks"
        else:
            shown = ending.reason
            if self.phase in (Phase.WITHDRAWING, Phase.TRACING):
                shown = f"{shown}; waiting for the backend, which is still being asked to start the ranks"
            elif self._push.under_way:
                shown = f"{shown}; waiting for the backend to pass it on"
            elif ending.until is not None and not ending.killed:
                shown = f"{shown}; the ranks have until {ending.until} to save. Stop again to kill them now"
        troubles = [
            line.trouble(now) for line in (self._submit, self._find, self._poll_call, *self._push.lines)
        ]
        told = list(dict.fromkeys(text for text in (shown, *troubles[::-1]) if text))
        self._writer.update(reason="; ".join(told[:2]) or None, waits=self._prompts.waits)

    def _nothing_runs(self) -> None:
        self._go(Event.NOTHING)
        self._writer.update(ranks=RankState.all(self._context.job.world_size, State.STOPPED))
        ending = self._ending
        assert ending is not None
        self.outcome = Outcome(ending.state, ending.reason, again=not ending.of_backend, detail=ending.reason)

    def _over(self, poll: Poll, ranks: tuple[RankState, ...]) -> None:
        ending = self._ending
        self._indexer.finish(time.time(), len(ranks))
        # Ranks that obey a stop may all exit with code 0. The run was stopped all the same.
        if poll.state is State.SUCCEEDED and (ending is None or ending.of_rank or ending.termed_at is None):
            self.outcome = Outcome(State.SUCCEEDED, None)
            return
        told = "; ".join(filter(None, (None if ending is None else ending.reason, poll.detail)))
        if ending is not None and not ending.of_rank:
            self.outcome = Outcome(ending.state, told, again=not ending.of_backend)
            return
        if poll.state is State.STOPPED and poll.final:
            self.outcome = Outcome(State.STOPPED, told, again=False)
            return
        reason = why_failed(self._context.folder, ranks, self._number, told)
        self.outcome = Outcome(State.FAILED, reason, again=not poll.final, detail=poll.detail)

    def _give_up(self, failure: Failure) -> None:
        """Kill the ranks if the supervisor started them. Otherwise they may still run: UNWATCHED."""
        self._go(Event.GIVEN_UP)
        ending = self._ending
        assert ending is not None
        able = self._context.able
        if able.outlives or able.apart:
            reason = f"{ending.reason}; whether the ranks have ended could not be learned: {failure}"
            self._writer.note(handle=self.handle, cursor=self._cursor)
            self.outcome = Outcome(State.UNWATCHED, reason, again=False)
            return
        end_leftovers(self._context.job.id)
        ranks = self._writer.status.ranks
        self._writer.update(ranks=tuple(rank.over(State.STOPPED, time.time()) for rank in ranks))
        self.outcome = Outcome(ending.state, ending.reason, again=False)
