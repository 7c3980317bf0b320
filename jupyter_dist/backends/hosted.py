"""Ranks on hosts that run our agent, for any backend that provides hosts.

The backend describes the hosts and the links to them (`Hosting`). This module and hosts/ do the rest once for
all: staging, starting, tailing, exits, resuming and stopping. `ssh` is built on this module, and third-party
backends can be too: see docs/backends.md.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..errors import LaunchError
from ..folder import RunFolder
from ..hosts.fleet import Fleet, FleetPoll
from ..hosts.links.link import LinkError, Reach
from ..hosts.links.mailbox import Mailbox
from ..hosts.links.stream import Pipe, by_pipe, stage_program
from ..hosts.settings import HostSettings
from ..hosts.start import Start
from ..job import Job, Poll, RankState, State
from .elastic.live_resize import LiveResize
from .elastic.options import ElasticOptions
from .elastic.restart_resize import RestartResize
from .elastic.rounds import Elastic
from .hosted_session import HostedSession, SessionExchange, session_environments
from .interface import Handle
from .ranks.host_gpus import HostGpuWait
from .ranks.placement import (
    RankEnvironmentOptions,
    RankPlacement,
    addresses,
    environments,
    gpu_trouble,
    gpu_wishes,
    places,
    ports_needed,
    rank_starts,
)
from .ranks.rank_states import is_displaced, rank_state
from .ranks.server_ranks import Serving
from .ranks.start_record import StartRecord
from .shared_options.agent import AgentOptions

__all__ = [
    "AgentOptions",
    "Elastic",
    "ElasticOptions",
    "HostSettings",
    "Hosted",
    "Hosting",
    "LinkError",
    "Mailbox",
    "Pipe",
    "RankEnvironmentOptions",
    "by_pipe",
    "stage_program",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _alone(method: Callable[Concatenate[Hosted, _P], _R]) -> Callable[Concatenate[Hosted, _P], _R]:
    """Serialize the calls: a backend process makes them from several threads."""

    @functools.wraps(method)
    def call(self: Hosted, /, *arguments: _P.args, **named: _P.kwargs) -> _R:
        with self._lock:
            return method(self, *arguments, **named)

    return call


def _nothing() -> None:
    pass


def _no_trouble() -> str | None:
    return None


@dataclass(frozen=True)
class Hosting:
    """The hosts of one run."""

    hosts: Sequence[Mapping[str, Any]]
    """`[{"name": "h1", "slots": 4}, …]`. Ranks fill the hosts in this order. The backend names the hosts."""
    settings: HostSettings
    reach: Reach | None = None
    """Factory of the links to the hosts, such as `Mailbox.reach`. None: ssh, configured by `settings`."""
    wanted: RankEnvironmentOptions = field(default_factory=RankEnvironmentOptions)
    """GPUs per worker and TensorFlow's roles, if the backend has options for them."""
    trouble: Callable[[], str | None] = _no_trouble
    """Returns what currently hinders the links, in a line for the user."""
    gone: Callable[[], Mapping[str, str]] = dict
    """Returns the hosts that have ended according to the platform, each with the reason.

    Every poll calls the function, once hosts have been seen. Without it, a host counts as lost after a
    silence of the grace time.
    """
    why_s: float = 0.0
    """Longest time in seconds that `gone` may need for the reason of a host's loss."""
    close: Callable[[], None] = _nothing
    """Called once when the run has ended and its hosts are released. Must not raise."""
    elastic: Elastic | None = None
    """Limits of an elastic run, in which ranks and hosts may join and leave.

    Horovod's ranks continue after a change. With `Elastic.anew`, all ranks restart.
    """
    now: Callable[[], Sequence[Mapping[str, Any]]] | None = None
    """In an elastic run: returns the current hosts, in the format of `hosts`. Every poll calls it.

    None: `hosts` is final, and a lost host is tried again. A host that `gone` has named stays lost. If it
    returns, it needs another name.
    """


class Hosted:
    """The run that this process watches. Its methods keep the same promises as those of `Backend`."""

    def __init__(self, hosting: Callable[[Job, RunFolder], Hosting]) -> None:
        """`hosting` is called once for a run in each process that watches the run. It must not block."""
        self._lock = threading.RLock()
        self._hosting_of = hosting
        self._hosting: Hosting | None = None
        self._fleet: Fleet | None = None
        self._job: Job | None = None
        self._folder: RunFolder | None = None
        self._attempt = 0
        self._started = self._stopping = self._ways_found = False
        self._trouble: str | None = None
        self._told: tuple[RankState, ...] | None = None
        self._taken_at: float | None = None
        """Time at which the driver first saw that ranks ended because a host's resources were taken away."""
        self._turn: HostGpuWait | None = None
        self._serving: Serving | None = None
        self._elastic: LiveResize | RestartResize | None = None
        self.session = SessionExchange()

    @_alone
    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        """Begin to set up the hosts. `poll` starts the ranks when all hosts are ready."""
        self._job, self._folder, self._attempt = job, folder, attempt
        self._started, self._stopping, self._trouble, self._turn = False, False, None, None
        self._taken_at = None
        self._serving = Serving(folder, attempt)
        if self._fleet is None:
            self._fleet = self._make_fleet(job, folder)
            self._fleet.begin()
        else:
            self._fleet.renew()
        if self._make_elastic(job, folder, attempt) is None:
            self._fleet.ask_for_ports(ports_needed(self._places(job)))
        return {"attempt": attempt}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        """Return the handle. The hosts report what runs on them when `poll` has connected to them."""
        return {"attempt": attempt}

    @_alone
    def poll(
        self, job: Job, folder: RunFolder, handle: Handle, cursor: Any = None, *, wait_s: float = 0.0
    ) -> Poll:
        """Return the state of the run, and answer and forward messages of the hosts.

        `wait_s`: how long to wait for a change of state, in seconds. Only a backend in a backend process may
        wait: other backends may not block.
        """
        fleet, job = self._ours(job, folder, handle)
        assert self._hosting is not None
        until = time.monotonic() + wait_s
        while True:
            fleet.wait(max(0.0, until - time.monotonic()))
            if self._elastic is not None:
                return self._elastic.poll(self._hosting.trouble())
            poll = self._standing(fleet, job)
            if poll.ranks != self._told or poll.state.ended or time.monotonic() >= until:
                self._told = poll.ranks
                return poll

    def _standing(self, fleet: Fleet, job: Job) -> Poll:
        assert self._hosting is not None
        fleet.give_up(self._hosting.gone())
        state = fleet.poll()
        if state.failed is not None or self._trouble is not None:
            why = state.failed or self._trouble
            ranks = tuple(dataclasses.replace(rank, state=State.STOPPED) for rank in self._pending(job))
            return Poll(State.FAILED, ranks, detail=why, final=state.final)
        if not self._started:
            if self._stopping:
                ranks = tuple(dataclasses.replace(rank, state=State.STOPPED) for rank in self._pending(job))
                return Poll(State.STOPPED, ranks, pids=state.pids)
            if state.ready:
                self._start(fleet, job)
            waits = None if self._turn is None else self._turn.why
            detail = waits or self._hindered(state)
            return Poll(State.PENDING, self._pending(job), pids=state.pids, detail=detail)
        if self.session.ranks is not None:
            return self.session.ranks.poll(state, self._hindered(state))
        assert self._serving is not None
        return self._serving.settle(self._as_poll(state, job), fleet.stop)

    @_alone
    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        self._end(job, folder, handle, kill=kill)

    def _end(
        self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool, interrupt: bool = False
    ) -> None:
        fleet, _ = self._ours(job, folder, handle)
        self._stopping = True
        if self._elastic is not None:
            self._elastic.stopping = True
        fleet.stop(kill=kill, interrupt=interrupt)

    @_alone
    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        if verb == "stacks":
            self._ours(job, folder, handle)[0].stacks()
        elif verb == "interrupt":
            self._end(job, folder, handle, kill=False, interrupt=True)

    def exchange(
        self, job: Job, folder: RunFolder, handle: Handle, wishes: Sequence[Mapping[str, Any]], wait_s: float
    ) -> dict[str, Any]:
        """Carry out wishes for the ranks of a session, and return their news. See `SessionExchange`."""
        with self.session.hurry(wishes), self._lock:
            fleet, job = self._ours(job, folder, handle)
            return self.session.make(fleet, lambda: self._standing(fleet, job), wishes, wait_s)

    @_alone
    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        """Release the hosts. Blocks for checkpoints, and some seconds for anything else.

        Returns what could not be removed from the hosts.
        """
        told = self._ours(job, folder, handle)[0].release()
        assert self._hosting is not None
        self._hosting.close()
        self._fleet = self._hosting = None
        return told

    def _ours(self, job: Job, folder: RunFolder, handle: Handle) -> tuple[Fleet, Job]:
        """Return the run's hosts. A new supervisor reconnects to them by the handle."""
        if self._fleet is None or self._job is None:
            self._folder, self._job = folder, job
            self._attempt = int(handle["attempt"])
            self._serving = Serving(folder, self._attempt)
            self._fleet = self._make_fleet(job, folder)
            elastic = self._make_elastic(job, folder, self._attempt)
            if elastic is not None:
                elastic.recall()
            elif self._record.exists() or job.env_names:
                self._fleet.expect(self._attempt, self._asked_before(job))
                self._fleet.begin(resume=True)
                self._started = True
            else:
                # The previous supervisor died while it set the hosts up: this one continues the set-up.
                self._fleet.begin()
                self._fleet.ask_for_ports(ports_needed(self._places(job)))
        return self._fleet, self._job

    @property
    def _record(self) -> StartRecord:
        assert self._folder is not None
        return StartRecord(self._folder.attempt(self._attempt))

    def _asked_before(self, job: Job) -> list[Start]:
        """Return what the previous supervisor asked the hosts to start.

        The fleet repeats a request that did not arrive, if its content is recorded. An agent starts nothing
        twice.
        """
        return self._record.read() or [Start(p.host, (), {}, p.rank) for p in self._places(job)]

    def _start(self, fleet: Fleet, job: Job) -> None:
        assert self._hosting is not None
        asked, where = self._hosting.wanted, self._places(job)
        names = dict.fromkeys(place.host for place in where)
        facts = {name: fleet.facts(name) for name in names}
        self._trouble = gpu_trouble(job, asked, where, facts)
        if self._trouble is not None:
            return
        if self._turn is None:
            self._turn = HostGpuWait(gpu_wishes(job, asked, where, facts), wait=asked.wait_for_gpus)
        try:
            if not self._turn.come(fleet):
                return
        except LaunchError as error:
            self._trouble = str(error)
            return
        if len(names) > 1 and not self._ways_found:
            self._ways_found = True
            at = addresses(facts)
            fleet.find_ways({name: (at[name], fleet.ports(name)[0]) for name in names}, where[0].host)
            return
        envs = environments(job, self._attempt, asked, where, facts, {n: fleet.ports(n) for n in names})
        starts = rank_starts(where, facts, session_environments(job, where, facts, envs))
        self._record.write(() if job.env_names else starts)
        fleet.start(self._attempt, starts)
        self._started = True
        if job.session is not None:
            self.session.ranks = HostedSession(fleet, self._pending(job), starts, self._turn.wishes)

    def _pending(self, job: Job) -> tuple[RankState, ...]:
        where = self._places(job)
        return tuple(RankState(p.rank, State.PENDING, host=p.host, local_rank=p.local_rank) for p in where)

    def _places(self, job: Job) -> list[RankPlacement]:
        assert self._hosting is not None
        return places(job.world_size, self._hosting.hosts)

    def _hindered(self, state: FleetPoll) -> str | None:
        assert self._hosting is not None
        return "; ".join(filter(None, (self._hosting.trouble(), state.detail))) or None

    def _make_elastic(self, job: Job, folder: RunFolder, attempt: int) -> LiveResize | RestartResize | None:
        asked, fleet = self._hosting, self._fleet
        assert asked is not None
        self._elastic = None
        if asked.elastic is not None:
            assert fleet is not None
            kind = RestartResize if asked.elastic.anew else LiveResize
            self._elastic = kind(
                job,
                folder,
                attempt,
                fleet,
                limits=asked.elastic,
                wanted=asked.wanted,
                hosts=asked.now or (lambda: asked.hosts),
                gone=asked.gone,
            )
        return self._elastic

    def _make_fleet(self, job: Job, folder: RunFolder) -> Fleet:
        self._hosting = asked = self._hosting_of(job, folder)
        if asked.elastic is not None:
            return Fleet(job, folder, (), asked.settings, asked.reach, elastic=True)
        used = {place.host for place in self._places(job)}
        hosts = [host for host in asked.hosts if host["name"] in used]
        return Fleet(job, folder, hosts, asked.settings, asked.reach)

    def _as_poll(self, state: FleetPoll, job: Job) -> Poll:
        found = {process.rank: process for process in state.processes}
        ranks = tuple(
            rank if rank.rank not in found else rank_state(rank, found[rank.rank])
            for rank in self._pending(job)
        )
        poll = Poll(RankState.overall(ranks), ranks, pids=state.pids, detail=self._hindered(state))
        assert self._hosting is not None
        taken = dict.fromkeys(process.host for process in found.values() if is_displaced(process))
        if taken:
            return self._without(taken, poll, state.detail)
        if poll.state is State.STOPPED and not self._stopping:
            grace_s = self._hosting.settings.grace_s
            why = f"no supervisor was connected for {grace_s:g} s (--grace), so the agents ended the ranks"
            return dataclasses.replace(poll, detail=why)
        return poll

    def _without(self, taken: Collection[str], poll: Poll, otherwise: str | None) -> Poll:
        """Return the poll of a run whose resources on some hosts were taken away, which ended the ranks.

        The platform may report the reason a moment later (`Hosting.gone`).
        """
        assert self._hosting is not None
        gone, hosts = self._hosting.gone(), set(taken)
        self._taken_at = self._taken_at or time.monotonic()
        known = self._stopping or gone.keys() >= hosts
        if not known and time.monotonic() - self._taken_at < self._hosting.why_s:
            ranks = tuple(
                dataclasses.replace(rank, state=State.RUNNING, ended=None)
                if rank.state is State.LOST and rank.host in hosts
                else rank
                for rank in poll.ranks
            )
            return dataclasses.replace(poll, state=State.RUNNING, ranks=ranks)
        unknown = self._hosting.trouble() or "the run's allocation there has ended"
        lost: dict[str, list[str]] = {}
        for host in taken:
            lost.setdefault(gone.get(host) or unknown, []).append(host)
        told = [f"{_named(names)} lost: {why}" for why, names in lost.items() if why not in (otherwise or "")]
        return dataclasses.replace(poll, detail="; ".join([*told, *filter(None, [otherwise])]))


def _named(hosts: Sequence[str]) -> str:
    return f"host {hosts[0]} was" if len(hosts) == 1 else f"hosts {', '.join(hosts)} were"
