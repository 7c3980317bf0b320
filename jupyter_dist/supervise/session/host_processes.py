"""The processes of a session's ranks on hosts, behind a backend process that exchanges messages with them."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import backends
from ...errors import LaunchError
from ...folder import RunFolder, make_attempt, write_json
from ...job import Job, Poll, RankState, State
from ...worker import layout
from ...worker.session import place
from ..backend_calls import Call
from ..backend_process.client import BackendProcessClient
from ..retry import RetriedCall
from ..status_writer import log

__all__ = ["HostProcesses"]

_NEWS_S = 1.0
"""How long one call waits for news of the ranks."""
_AGAIN_S = 1.0
_TELLING_S = 5.0
"""How long a release waits for the messages that are being sent to the hosts."""
_RELEASE_S = 60.0
"""A platform that does not answer is asked for almost a minute to end its job (backends/platform_job.py)."""


class HostProcesses:
    """See `SessionProcesses`. The backend has the call `exchange` (backends/hosted_session.py)."""

    here = False

    def __init__(self, job: Job, folder: RunFolder) -> None:
        # An agent sends what is missing here. The files of an earlier session with this name are others.
        shutil.rmtree(folder.path / layout.ATTEMPTS, ignore_errors=True)
        make_attempt(folder, 0, job.world_size)
        write_json(folder.job, job.to_json())
        able = backends.declared(job.backend).capabilities
        self._caller = BackendProcessClient(folder, _ignore, may_fork=bool(able.client) or not able.apart)
        self._grace_s = float(job.options.get("grace") or 300.0)
        self._submit = RetriedCall(self._caller, "submit", self._grace_s)
        self._find = RetriedCall(self._caller, "find", self._grace_s)
        self._next: RetriedCall | None = self._submit
        """The call that is made when its pause is over."""
        self._handle: Mapping[str, Any] | None = None
        self._listening: Call | None = None
        self._telling: Call | None = None
        self._listen_at = 0.0
        self._silent_since: float | None = None
        self._wishes: list[dict[str, Any]] = []
        self._states: Sequence[RankState] = RankState.all(job.world_size)
        self._numbers = dict.fromkeys(range(job.world_size), 0)
        """How many processes each rank has had before its present one."""
        self._arrived: list[tuple[int, Mapping[str, Any]]] = []
        self._news: Mapping[str, Any] = {}
        """The newest news. The answers of two calls may arrive in another order."""
        self._ports: list[int] = []
        """Free ports of rank 0's host that no process group has used."""
        self._last_ports: Sequence[int] = ()
        self._pids: tuple[int, ...] = ()
        self._started = False
        self._meanwhile: Callable[[], object] = lambda: None
        """What a release does while it waits."""
        self.detail: str | None = None
        self.failed: str | None = None
        self.has_news = False

    @property
    def pids(self) -> tuple[int, ...]:
        carrier = self._caller.pid
        return (*self._pids, *(() if carrier is None else (carrier,)))

    def fileno(self) -> int | None:
        return self._caller.fileno()

    def start(self) -> None:
        self._begin_submission()

    def poll(self) -> Sequence[RankState]:
        self._caller.look()
        self.has_news = False
        if self.failed is None:
            self._take_handle()
            self._begin_submission()
            self._take_news()
            self._begin_calls()
        return self._states

    def _begin_submission(self) -> None:
        if self._next is not None and self._next.ready(time.monotonic()):
            self._next.begin(attempt=0)
            self._next = None

    def _take_handle(self) -> None:
        """Take the handle of the hosts. A submission that fails for now may have reached the cluster."""
        for kind, after in ((self._submit, self._find), (self._find, self._submit)):
            now = time.monotonic()
            call = kind.take(now)
            if call is None:
                continue
            if call.failure is None:
                self._handle = call.value
                self._next = None if call.value is not None else after
            elif call.failure.may_pass and not kind.exhausted(now):
                self.detail, self._next = self._submit.trouble(now) or kind.trouble(now), self._find
            else:
                log(f"the backend's call failed: {call.failure}\n{call.failure.trace}")
                self._fail(call.failure.text if call.failure.told else str(call.failure))

    def _take_news(self) -> None:
        if self._telling is not None and self._telling.done:
            call, self._telling = self._telling, None
            self._take(call, lost_wishes=True)
        if self._listening is not None and self._listening.done:
            call, self._listening = self._listening, None
            self._take(call, lost_wishes=False)

    def _take(self, call: Call, *, lost_wishes: bool) -> None:
        self.has_news = True
        if call.failure is None:
            self._silent_since = None
            self._take_values(call.value)
            return
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        self._listen_at = now + _AGAIN_S
        over = lost_wishes or not call.failure.may_pass or call.failure.kind == "ProcessEnded"
        if over or now - self._silent_since > self._grace_s:
            log(f"the backend's `exchange` failed: {call.failure}\n{call.failure.trace}")
            self._fail(f"the hosts cannot be controlled any more: {call.failure}")

    def _take_values(self, value: Mapping[str, Any]) -> None:
        poll = Poll.from_json(value["poll"])
        if not value["started"]:
            self.detail, self._pids = poll.detail, poll.pids
            if poll.state.ended:
                self._states = poll.ranks
                self._fail(poll.detail or "the ranks could not be started")
            return
        self._started = True
        self._arrived += [
            (rank, message) for rank, number, message in value["messages"] if number == self._numbers[rank]
        ]
        if value["turn"] < self._news.get("turn", 0):
            return
        self._news, self.detail, self._pids = value, poll.detail, poll.pids
        numbers = {int(rank): number for rank, number in value["numbers"].items()}
        self._states = [
            new if numbers[new.rank] == self._numbers[new.rank] else old
            for new, old in zip(poll.ranks, self._states, strict=True)
        ]
        if value["ports"] and value["ports"] != self._last_ports:
            self._ports, self._last_ports = list(value["ports"]), value["ports"]
        if value.get("over") is not None and all(rank.state.ended for rank in poll.ranks):
            self._fail(value["over"])

    def _begin_calls(self) -> None:
        if self._handle is None or self.failed is not None:
            return
        if self._started and self._wishes and self._telling is None:
            wishes, self._wishes = self._wishes, []
            self._telling = self._caller.begin("exchange", handle=self._handle, wishes=wishes, wait_s=0.0)
        if self._listening is None and time.monotonic() >= self._listen_at:
            self._listening = self._caller.begin("exchange", handle=self._handle, wishes=[], wait_s=_NEWS_S)

    def _fail(self, why: str) -> None:
        self.failed = self.detail = why
        self._states = [_lost(state) for state in self._states]

    def _wish(self, **wish: Any) -> None:
        self._wishes.append(wish)
        if self.failed is None:
            self._begin_calls()

    def replace(self, rank: int) -> RankState:
        self._numbers[rank] += 1
        state = RankState(rank, State.PENDING, host=self._states[rank].host)
        self._states = [state if each.rank == rank else each for each in self._states]
        self._wish(do="replace", rank=rank, number=self._numbers[rank])
        return state

    def kill(self, states: Iterable[RankState]) -> None:
        for state in states:
            self._wish(do="kill", rank=state.rank)

    def stacks(self) -> None:
        self._wish(do="stacks")

    @property
    def not_kept(self) -> str | None:
        found: str | None = self._news.get("not_kept")
        return found

    def release(self, meanwhile: Callable[[], object]) -> str | None:
        """Release the hosts. Blocks, for some seconds, or for two minutes if a platform does not answer."""
        self._meanwhile = meanwhile
        told = self._find_reserved()
        if self._handle is not None:
            self._wait(lambda: self._telling is None or self._telling.done, _TELLING_S)
            call = self._caller.begin("release", handle=self._handle)
            self._wait(lambda: call.done, _RELEASE_S)
            told = call.value
            if not call.done or call.failure is not None:
                told = f"the release of the hosts failed: {call.failure or 'no answer'}"
        if told is not None:
            log(told)
        self._caller.close()
        return told

    def _find_reserved(self) -> str | None:
        """Wait for the handle of hosts that are still being reserved, because they would stay reserved.

        A submission that has failed may have reserved them all the same. Returns what the user must know if
        the backend does not answer.
        """
        until = time.monotonic() + _RELEASE_S
        self._wait(self._has_answered, until - time.monotonic())
        failure = self._submit.failure
        in_doubt = failure is not None and (failure.may_pass or not failure.told)
        if self._handle is None and in_doubt and not (self._submit.under_way or self._find.under_way):
            self._find.begin(attempt=0)
            self._wait(self._has_answered, until - time.monotonic())
        if self._handle is not None or not (in_doubt or self._submit.under_way or self._find.under_way):
            return None
        why = "no answer" if self._submit.under_way or self._find.under_way else self._find.failure
        if why is None:
            return None
        return (
            f"the session may still have hosts, which can cost money. Asking for them failed ({why}). "
            "Look for them with the cluster's own tools"
        )

    def _has_answered(self) -> bool:
        """Take the handle, if it has arrived. Return whether no call for it is pending."""
        self._take_handle()
        return not (self._submit.under_way or self._find.under_way)

    def _wait(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Process answers until this is over, for so many seconds at most."""
        until = time.monotonic() + seconds
        while not is_over() and time.monotonic() < until:
            self._caller.look()
            self._meanwhile()
            time.sleep(0.01)

    def send(self, rank: int, message: Mapping[str, Any]) -> None:
        self._wish(do="message", rank=rank, message=dict(message))

    def arrived(self) -> list[tuple[int, Mapping[str, Any]]]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def stage(self, cell: RunFolder, ranks: Collection[int], more: Collection[str]) -> None:
        self._wish(do="stage", cell=str(cell.path), ranks=list(ranks), more=list(more))

    def staged(self, cell: RunFolder) -> bool:
        if not self._ports:
            return False
        found, why = self._news.get("ready") or (None, None)
        if found == cell.id and why is not None:
            raise LaunchError(f"the cell cannot run on {why}")
        return bool(found == cell.id)

    def path(self, rank: int, cell: RunFolder, file: Path | None = None) -> str:
        run = f"{self._news['stages'][str(rank)]}/{place.CELLS}/{cell.id}"
        return run if file is None else f"{run}/{file.name}"

    def answers(self, rank: int) -> bool:
        return self.failed is None and rank not in self._news.get("away", ())

    def free_port(self) -> int:
        if len(self._ports) <= 2:
            self._wish(do="ports")
        return self._ports.pop(0)

    def memory(self, rank: int) -> int | None:
        found = self._news.get("memory", {}).get(str(rank))
        return None if found is None else int(found)


def _ignore(pid: int) -> None:
    """Do nothing with the pid of the backend process: `pids` has it."""


def _lost(state: RankState) -> RankState:
    """Return the state of a rank that nobody can control any more."""
    if state.state.ended:
        return state
    now = State.LOST if state.pid is not None else State.STOPPED
    return dataclasses.replace(state, state=now, ended=time.time())
