"""The backend `ssh`: ranks on any hosts that can be logged in to, with nothing installed there but Python."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from ..errors import InputError
from ..folder import RunFolder
from ..hosts import openssh
from ..hosts.fleet import Fleet, FleetPoll, Start
from ..hosts.host import HostProcess
from ..hosts.openssh import SshSettings
from ..job import Job, Poll, RankState, State
from ._base import Capabilities, Handle, Options
from .ranks.host_options import HostOptions, Line, check_hosts
from .ranks.places import addresses, environments, gpu_trouble, places, ports_needed
from .ranks.roles import Chief, Evaluator, ParameterServers, roles
from .ranks.serving import Serving

__all__ = ["Ssh", "SshOptions"]

_READ_AT_START = ("DYLD_", "GLIBC_", "LD_", "MALLOC_", "PYTHON")


class SshOptions(HostOptions):
    """Options of the backend `ssh`."""

    gpus_per_worker: int | None = Field(
        default=None,
        ge=0,
        title="GPUs per worker",
        description="GPUs that each rank sees, numbered from 0 in the rank. "
        "Default: all of its host, shared out evenly. 0 trains on the CPU.",
    )
    interface: Line = Field(
        default=None,
        title="Network interface",
        description="The network interface by which the hosts reach each other (MASTER_ADDR, gloo, NCCL), "
        "or several with commas, where it has another name on some. Default: the one that ssh comes in by",
        json_schema_extra={"metavar": "NAME", "wanted": "the name of a network interface, such as eth1"},
    )
    ps: ParameterServers = 0
    chief: Chief = False
    evaluator: Evaluator = False

    def settings(self) -> SshSettings:
        return dataclasses.replace(super().settings(), interface=self.interface)


class Ssh:
    """An agent on each host starts the ranks and sends on what they write. It outlives its driver a while."""

    name: ClassVar[str] = "ssh"
    options: ClassVar[type[Options]] = SshOptions
    capabilities: ClassVar[Capabilities] = Capabilities(hosts=True, outlives=True)
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._fleet: Fleet | None = None
        self._job: Job | None = None
        self._attempt = 0
        self._started = self._stopping = self._ways_found = False
        self._trouble: str | None = None
        self._serving: Serving | None = None

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        asked = SshOptions(**options)
        if not asked.hosts:
            raise InputError(
                "the backend 'ssh' needs hosts: -H node1:4,node2:4 (the number of workers each takes), "
                "or --hostfile FILE"
            )
        check_hosts(asked)
        roles(world_size, ps=asked.ps, chief=asked.chief, evaluator=asked.evaluator)
        slots = sum(int(host["slots"]) for host in asked.hosts)
        if world_size > slots:
            raise InputError(f"{world_size} workers, but the hosts take {slots}: name more slots with -H")
        return []

    def detect(self) -> dict[str, Any]:
        version = openssh.version()
        return {} if version is None else {"OpenSSH": version.removeprefix("OpenSSH_").split()[0]}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        asked = SshOptions(**job.options)
        settings = asked.settings()
        where = places(job.world_size, asked.hosts)
        envs = environments(job, attempt, asked, where, None, {})
        return {
            "hosts": [
                {**host, "argv": openssh.command(str(host["name"]), settings)[:-1]}
                for host in asked.hosts
                if any(place.host == host["name"] for place in where)
            ],
            "pythons": list(openssh.pythons(settings)),
            "argv": [settings.python or sys.executable, "-m", "jupyter_dist.worker"],
            "ranks": [
                {"rank": place.rank, "host": place.host, "env": env}
                for place, env in zip(where, envs, strict=True)
            ],
        }

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        self._job, self._attempt = job, attempt
        self._started, self._stopping, self._trouble = False, False, None
        self._serving = Serving(folder, attempt)
        if self._fleet is None:
            self._fleet = _fleet(job, folder)
            self._fleet.begin()
        else:
            self._fleet.renew()
        asked = SshOptions(**job.options)
        self._fleet.ask_for_ports(ports_needed(places(job.world_size, asked.hosts)))
        return {"folder": str(folder.path), "attempt": attempt}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        return {"folder": str(folder.path), "attempt": attempt}  # the hosts tell what there is

    def poll(self, handle: Handle, cursor: Any) -> Poll:
        fleet, job = self._ours(handle)
        state = fleet.poll()
        if state.failed is not None or self._trouble is not None:
            why = state.failed or self._trouble
            ranks = tuple(dataclasses.replace(rank, state=State.STOPPED) for rank in self._pending(job))
            return Poll(State.FAILED, ranks, detail=why)
        if not self._started:
            if self._stopping:
                ranks = tuple(dataclasses.replace(rank, state=State.STOPPED) for rank in self._pending(job))
                return Poll(State.STOPPED, ranks, pids=state.pids)
            if state.ready:
                self._start(fleet, job)
            return Poll(State.RUNNING, self._pending(job), pids=state.pids, detail=state.detail)
        assert self._serving is not None
        return self._serving.settle(self._as_poll(state, job), fleet.stop)

    def stop(self, handle: Handle, *, kill: bool) -> None:
        fleet, _ = self._ours(handle)
        self._stopping = True
        fleet.stop(kill=kill)

    def ask(self, handle: Handle, rank: int | None, verb: str) -> None:
        if verb == "stacks":
            self._ours(handle)[0].stacks()

    def release(self, handle: Handle) -> None:
        self._ours(handle)[0].release()
        self._fleet = None

    def _ours(self, handle: Handle) -> tuple[Fleet, Job]:
        """The hosts of the run, found again with the handle where another supervisor set them up."""
        if self._fleet is None or self._job is None:
            folder = RunFolder(Path(handle["folder"]))
            self._job = job = Job.from_json(json.loads(folder.job.read_bytes()))
            self._attempt = int(handle["attempt"])
            self._serving = Serving(folder, self._attempt)
            self._fleet = _fleet(job, folder)
            where = places(job.world_size, SshOptions(**job.options).hosts)
            self._fleet.expect(self._attempt, [Start(place.host, (), {}, place.rank) for place in where])
            self._fleet.begin(resume=True)
            self._started = True
        return self._fleet, self._job

    def _start(self, fleet: Fleet, job: Job) -> None:
        asked = SshOptions(**job.options)
        where = places(job.world_size, asked.hosts)
        names = dict.fromkeys(place.host for place in where)
        facts = {name: fleet.facts(name) for name in names}
        self._trouble = gpu_trouble(job, asked, where, facts)
        if self._trouble is not None:
            return
        if len(names) > 1 and not self._ways_found:
            self._ways_found = True
            at = addresses(facts)
            fleet.find_ways({name: (at[name], fleet.ports(name)[0]) for name in names}, where[0].host)
            return
        envs = environments(job, self._attempt, asked, where, facts, {n: fleet.ports(n) for n in names})
        # These are read when a program starts, which a fork does not.
        fork = not any(n.startswith(_READ_AT_START) for env in envs for n in env)
        starts = [
            Start(place.host, (facts[place.host].python, "-m", "jupyter_dist.worker"), env, place.rank, fork)
            for place, env in zip(where, envs, strict=True)
        ]
        fleet.start(self._attempt, starts)
        self._started = True

    def _pending(self, job: Job) -> tuple[RankState, ...]:
        where = places(job.world_size, SshOptions(**job.options).hosts)
        return tuple(RankState(p.rank, State.PENDING, host=p.host, local_rank=p.local_rank) for p in where)

    def _as_poll(self, state: FleetPoll, job: Job) -> Poll:
        found = {process.rank: process for process in state.processes}
        ranks = tuple(
            rank if rank.rank not in found else _rank_state(rank, found[rank.rank])
            for rank in self._pending(job)
        )
        overall, detail = _overall(ranks), state.detail
        if overall is State.STOPPED and not self._stopping:
            grace_s = SshOptions(**job.options).grace
            detail = (
                f"no supervisor was there for {grace_s:g} s (--grace), so the hosts' agents ended the ranks"
            )
        return Poll(overall, ranks, pids=state.pids, detail=detail)


def _fleet(job: Job, folder: RunFolder) -> Fleet:
    asked = SshOptions(**job.options)
    used = {place.host for place in places(job.world_size, asked.hosts)}
    return Fleet(job, folder, [host for host in asked.hosts if host["name"] in used], asked.settings())


def _rank_state(rank: RankState, process: HostProcess) -> RankState:
    if process.lost is not None:
        state = State.LOST
    elif not process.over:
        state = State.RUNNING
    elif process.exit_code == 0:
        state = State.SUCCEEDED
    else:
        state = State.STOPPED if process.told else State.FAILED
    return dataclasses.replace(
        rank,
        state=state,
        pid=process.pid,
        exit_code=process.exit_code,
        signal=process.signal,
        started=process.started,
        ended=process.ended,
        peak_memory_bytes=process.peak_memory_bytes,
    )


def _overall(ranks: Sequence[RankState]) -> State:
    states = {rank.state for rank in ranks}
    if State.RUNNING in states or State.PENDING in states:
        return State.RUNNING
    if states == {State.SUCCEEDED}:
        return State.SUCCEEDED
    return State.FAILED if State.FAILED in states or State.LOST in states else State.STOPPED
