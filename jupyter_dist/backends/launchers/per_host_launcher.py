"""A launcher on every host of a run (torchrun): started by agents, and followed by the ranks' files."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import LaunchError
from ...folder import RunFolder
from ...hosts.fleet import Fleet, FleetPoll
from ...hosts.host import HostFacts, HostProcess
from ...hosts.start import Start
from ...job import Job, Poll, RankState, State
from ...worker import layout
from ..ranks.host_gpus import HostGpuWait, gpus_there, launcher_turn
from ..ranks.placement import addresses, network
from ..shared_options.hosts import HostOptions
from .local_launcher import environment
from .rank_files import RankFiles, asked, judged, was_told

__all__ = ["Elastic", "PerHostLauncher", "addresses_of", "environment_there"]

_UNNOTICED_S = 10.0
"""Seconds for which the driver may not notice that a host is gone. The other ranks notice it at once."""


@dataclasses.dataclass(frozen=True)
class Elastic:
    """Limits of the loss of hosts in a run."""

    least: int
    """Smallest number of hosts."""
    restarts: int
    """Largest number of restarts of the ranks."""
    fixed: bool = True
    """Whether the run needs all hosts."""
    first_is_met: bool = False
    """Whether the rendezvous is on the first host.

    If that host is lost, the ranks restart with another one.
    """


class PerHostLauncher:
    """The launchers and ranks of a run over several hosts. Not for several threads.

    `ranks`: the number on each host. `starts`: returns one launcher for each named host, once the hosts are
    ready.
    """

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        asked: HostOptions,
        hosts: Sequence[Mapping[str, Any]],
        *,
        ranks: Mapping[str, int],
        name: str,
        elastic: Elastic,
        starts: Callable[[Fleet, int, Sequence[str]], Sequence[Start]],
        explain: Callable[[str], str],
    ) -> None:
        self._job, self._folder, self._name, self._elastic = job, folder, name, elastic
        self._asked, self._ranks = asked, ranks
        self._turn: HostGpuWait | None = None
        self._starts, self._explain = starts, explain
        self._fleet = Fleet(job, folder, hosts, asked.settings())
        self._names = [str(host["name"]) for host in hosts]
        self._files = RankFiles(folder, job.world_size if elastic.fixed else 0)
        self._began = self._started = False
        self._attempt = 0
        self._since = 0
        """The attempt with which the launchers were started. The launchers begin further ones themselves."""
        self._left = list(self._names)
        self._moving_at: float | None = None
        self._earlier: dict[int, RankFiles] = {}
        self._ended: tuple[RankState, ...] = ()
        """The ranks of the previous attempt, until there are new ones."""
        self._asked_at: float | None = None
        self._away: dict[str, float] = {}
        self._final: Poll | None = None

    def submit(self, attempt: int, ports: Mapping[str, int]) -> dict[str, Any]:
        """Set the hosts up. `poll` starts the launchers when the hosts are ready.

        `ports`: wanted ports by host.
        """
        self._attempt, self._started, self._final, self._asked_at = attempt, False, None, None
        self._since, self._left, self._moving_at = attempt, list(self._names), None
        self._turn = None
        if self._began:
            self._fleet.renew()
        else:
            self._fleet.begin()
            self._began = True
        self._fleet.ask_for_ports(ports)
        return {"hosts": self._names}

    def poll(self) -> Poll:
        if self._final is not None:
            return self._final
        state = self._fleet.poll()
        if state.failed is not None:
            return Poll(
                State.FAILED,
                RankState.all(self._job.world_size, State.STOPPED),
                detail=state.failed,
                final=state.final,
            )
        if not self._started:
            if self._asked_at is not None:
                return Poll(
                    State.STOPPED, RankState.all(self._job.world_size, State.STOPPED), pids=state.pids
                )
            return self._advance(state)
        return self._look(state)

    def _advance(self, state: FleetPoll) -> Poll:
        """Start the launchers once the hosts are ready and have their GPUs."""
        try:
            if state.ready:
                self._turn = self._turn or launcher_turn(self._job, self._asked, self._ranks, self._fleet)
                if self._turn.come(self._fleet):
                    self._fleet.start(self._attempt, self._starts(self._fleet, self._attempt, self._left))
                    self._started = True
        except LaunchError as error:
            self._final = Poll(
                State.FAILED, RankState.all(self._job.world_size, State.STOPPED), detail=str(error)
            )
            return self._final
        waits = None if self._turn is None else self._turn.why
        return Poll(
            State.PENDING,
            RankState.all(self._job.world_size),
            pids=state.pids,
            detail=waits or state.detail,
        )

    def _look(self, state: FleetPoll) -> Poll:
        attempt = self._files.newest(self._attempt)
        ranks = self._files.look(attempt) if attempt >= self._since else list(self._ended)
        for name in state.away:
            self._away.setdefault(name, time.time())
        lost = {self._fleet.facts(p.host).hostname: self._lost_at(p) for p in state.processes if p.lost}
        # Ranks survive a killed launcher, but nobody restarts them or reports their end.
        killed = [
            p
            for p in state.processes
            if p.signal is not None and not p.lost and not asked((p.ended or 0.0) + 1, self._asked_at)
        ]
        if self._moving_at is None:
            lost |= {self._fleet.facts(p.host).hostname: p.ended or time.time() for p in killed}
        for place, rank in enumerate(ranks):
            if rank.state is State.RUNNING and rank.host in lost:
                ended = max(rank.started or 0.0, lost[rank.host])
                ranks[place] = dataclasses.replace(rank, state=State.LOST, ended=ended)
        there = [p for p in state.processes if not p.lost and p.host not in state.away]
        if self._moving_at is not None or self._may_move(state, attempt):
            return self._move(state, attempt, ranks)
        over = all(p.over for p in state.processes)
        if not self._elastic.fixed:
            while len(ranks) > 1 and ranks[-1].started is None:
                ranks.pop()
            # Do not wait for ranks that a resize has left behind.
            done = [p for p in there if p.exit_code == 0 and p.over]
            all_done = all(rank.state is State.SUCCEEDED for rank in ranks)
            over = over or (all_done and len(done) == len(there) >= self._elastic.least)
        ranks = judged(ranks, self._asked_at, over=over)
        newest = attempt if attempt > self._attempt else None
        if not over:
            left = self._spent(attempt) < self._elastic.restarts and not killed
            enough = (
                not lost if self._elastic.fixed else len(state.processes) - len(lost) >= self._elastic.least
            )
            return Poll(
                State.RUNNING,
                tuple(ranks),
                pids=state.pids,
                attempt=newest,
                replaces=left and enough and self._asked_at is None,
                detail=state.detail,
            )
        overall, detail = self._judge(there, ranks, state)
        self._final = Poll(overall, tuple(ranks), pids=state.pids, attempt=newest, detail=detail)
        return self._final

    def _spent(self, attempt: int) -> int:
        """Return how many restarts followed a failed or lost rank.

        A restart for a new host does not count.
        """
        spent = 0
        for earlier in range(self._attempt, attempt):
            ranks = self._earlier.setdefault(earlier, RankFiles(self._folder, 0)).look(earlier)
            first = min(
                ranks, key=lambda rank: rank.ended or math.inf
            )  # the others' errors follow from its end
            lost = any(rank.state is State.RUNNING for rank in ranks)
            spent += lost or (first.state is State.FAILED and not was_told(first))
        return spent

    def _may_move(self, state: FleetPoll, attempt: int) -> bool:
        """Return whether the rendezvous host is lost, and the others are to continue without it."""
        gone = {p.host for p in state.processes if p.lost}
        return (
            self._elastic.first_is_met
            and self._left[0] in gone
            and self._asked_at is None
            and self._spent(attempt) < self._elastic.restarts
            and len(set(self._left) - gone) >= max(1, self._elastic.least)
        )

    def _move(self, state: FleetPoll, attempt: int, ranks: Sequence[RankState]) -> Poll:
        """Stop the rest of the launchers, then start new ones with a rendezvous on the next host."""
        if self._moving_at is None:
            self._moving_at = time.time()
            self._fleet.stop(kill=True)
        elif all(p.over for p in state.processes) and self._asked_at is None:
            gone = {p.host for p in state.processes if p.lost}
            self._left = [name for name in self._left if name not in gone]
            self._since = attempt + 1
            print(f"{self._name}: all meet on host {self._left[0]} now", flush=True)
            self._fleet.start(self._since, self._starts(self._fleet, self._since, self._left))
            self._ended = tuple(judged(ranks, self._moving_at, over=True))
            self._moving_at = None
            return self._look(self._fleet.poll())
        ranks = judged(ranks, self._moving_at, over=False)
        newest = attempt if attempt > self._attempt else None
        if self._asked_at is not None and all(p.over for p in state.processes):
            ranks = judged(ranks, self._asked_at, over=True)
            self._final = Poll(State.STOPPED, tuple(ranks), pids=state.pids, attempt=newest)
            return self._final
        replaces = self._asked_at is None
        return Poll(
            State.RUNNING,
            tuple(ranks),
            pids=state.pids,
            attempt=newest,
            replaces=replaces,
            detail=state.detail,
        )

    def _lost_at(self, process: HostProcess) -> float:
        """Return the earliest time of a host's loss. Errors of other ranks after that time follow from it."""
        noticed = self._away.get(process.host, process.ended or time.time())
        return min(noticed, process.ended or noticed) - _UNNOTICED_S

    def _judge(
        self, there: Sequence[HostProcess], ranks: Sequence[RankState], state: FleetPoll
    ) -> tuple[State, str | None]:
        states = {rank.state for rank in ranks}
        if there and states == {State.SUCCEEDED} and all(p.exit_code == 0 for p in there):
            return State.SUCCEEDED, None
        if states & {State.FAILED, State.LOST}:
            return State.FAILED, state.detail
        if self._asked_at is not None:
            return State.STOPPED, None
        failed = [p for p in state.processes if p.lost or p.error or p.exit_code != 0]
        return State.FAILED, self._why(min(failed, key=lambda p: p.ended or 0.0)) if failed else None

    def _why(self, process: HostProcess) -> str:
        where = f"{self._name} on host {process.host}"
        if process.lost or process.error:
            return f"{where}: {process.lost or process.error}"
        how = f"signal {process.signal}" if process.exit_code is None else f"exit code {process.exit_code}"
        log = self._folder.attempt(self._since) / layout.launcher_log(process.host)
        try:
            said = self._explain(log.read_text("utf-8", "replace"))
        except OSError:
            said = ""
        return f"{where} ended with {how}" + (f": {said}" if said else "")

    def signal(self, *, kill: bool, interrupt: bool = False) -> None:
        self._asked_at = self._asked_at or time.time()
        self._fleet.stop(kill=kill, interrupt=interrupt)

    def stacks(self) -> None:
        self._fleet.stacks()

    def release(self) -> str | None:
        self._began = False
        return self._fleet.release()


def environment_there(
    launcher: str, job: Job, attempt: int, facts: HostFacts, per_host: int, asked: HostOptions, address: str
) -> dict[str, str]:
    """Return a launcher's variables on a host, as far as they differ from a login's there."""
    env = environment(launcher, job, attempt, per_host, {})
    env["OMP_NUM_THREADS"] = str(max(1, facts.cores // max(1, per_host)))
    env |= network(facts, address) | gpus_there(asked, facts)
    if facts.clock_offset_s:
        env["JUPYTER_DIST_CLOCK_OFFSET_S"] = str(facts.clock_offset_s)
    if asked.rsync_paths:
        env["JUPYTER_DIST_CWD"] = env["PYTHONPATH"] = os.path.join(facts.stage, "work")
    # No file contains their values: only the supervisor that was started with them has them.
    return env | {name: os.environ[name] for name in job.env_names if name in os.environ}


def addresses_of(fleet: Fleet, names: Sequence[str]) -> dict[str, str]:
    """Return the address of each host, as the others see it."""
    return addresses({name: fleet.facts(name) for name in names})
