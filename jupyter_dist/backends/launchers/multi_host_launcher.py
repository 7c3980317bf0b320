"""A launcher on this machine with ranks on other hosts (mpirun, horovodrun). The hosts are set up first."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import DistError
from ...folder import RunFolder
from ...hosts.openssh import LOCAL, ssh_script
from ...job import Job, Poll, RankState, State
from ..ranks.host_gpus import HostGpuWait, launcher_turn
from ..ranks.placement import in_url, places
from ..shared_options.hosts import HostOptions
from .local_launcher import LocalLauncher
from .per_host_launcher import addresses_of, environment_there
from .rank_control import RemoteRanks

__all__ = ["MultiHostLauncher", "hosts_argument", "launcher_environment", "rank_environments"]


class MultiHostLauncher:
    """The hosts of a run, its launcher, and its ranks. Used like `LocalLauncher`. Not for several threads.

    `environments`: returns the variables of the ranks on each host, if the launcher sets only its own.
    `start`: starts the launcher, with `Launched(…, reach=there)`. Both are called when the hosts are ready.
    """

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        asked: HostOptions,
        *,
        environments: Callable[[RemoteRanks, int], Mapping[str, Mapping[str, str]]],
        start: Callable[[RemoteRanks, int], LocalLauncher],
    ) -> None:
        self._job, self._environments, self._start = job, environments, start
        counts: dict[str, int] = {}
        for place in places(job.world_size, asked.hosts):
            counts[place.host] = counts.get(place.host, 0) + 1
        self._asked, self._ranks = asked, counts
        self._turn: HostGpuWait | None = None
        self._ports = {name: 1 + count for name, count in counts.items()}
        hosts = [host for host in asked.hosts if host["name"] in counts]
        self._there = RemoteRanks(job, folder, asked, hosts)
        self._launched: LocalLauncher | None = None
        self._attempt = 0
        self._prepared = self._stopping = False
        self._trouble: str | None = None

    def submit(self, attempt: int) -> dict[str, Any]:
        """Begin to set the hosts up. `poll` continues the set-up."""
        self._attempt, self._launched, self._trouble = attempt, None, None
        self._prepared = self._stopping = False
        self._turn = None
        self._there.begin(attempt, self._ports)
        return {"hosts": self._there.names}

    def poll(self) -> Poll:
        state = self._there.poll()
        if self._launched is None:
            self._trouble = self._trouble or state.failed
            if self._trouble is None and state.ready and not self._stopping:
                self._advance()
        if self._launched is not None:
            poll = self._launched.poll()
            pids = (*poll.pids, *state.pids) if poll.pids else ()
            return dataclasses.replace(poll, pids=pids, detail=poll.detail or state.detail)
        if self._trouble is not None:
            return Poll(
                State.FAILED, RankState.all(self._job.world_size, State.STOPPED), detail=self._trouble
            )
        if self._stopping:
            return Poll(State.STOPPED, RankState.all(self._job.world_size, State.STOPPED), pids=state.pids)
        waits = None if self._turn is None else self._turn.why
        return Poll(
            State.PENDING,
            RankState.all(self._job.world_size),
            pids=state.pids,
            detail=waits or state.detail,
        )

    def _advance(self) -> None:
        try:
            fleet = self._there.fleet
            self._turn = self._turn or launcher_turn(self._job, self._asked, self._ranks, fleet)
            if not self._turn.come(fleet):
                return
            if self._prepared:
                self._launched = self._start(self._there, self._attempt)
            else:
                fleet.prepare(self._environments(self._there, self._attempt))
                self._prepared = True
        except DistError as error:
            self._trouble = str(error)

    def signal(self, *, kill: bool, interrupt: bool = False) -> None:
        self._stopping = True
        if self._launched is not None:
            self._launched.signal(kill=kill, interrupt=interrupt)

    def stacks(self) -> None:
        if self._launched is not None:
            self._launched.stacks()

    def release(self) -> str | None:
        if self._launched is not None:
            self._launched.release()
        return self._there.release()


def rank_environments(
    launcher: str, job: Job, attempt: int, asked: HostOptions, there: RemoteRanks, *, by_node: bool = False
) -> dict[str, dict[str, str]]:
    """Return the variables of the ranks on each host: the rendezvous, and the host's own variables.

    `by_node`: the launcher puts the next rank on the next host. By default ranks fill host after host.
    Values of --env are left out, because these variables are written to the host. The launcher passes them.
    """
    where = places(job.world_size, asked.hosts)
    if by_node:
        where.sort(key=lambda place: (place.local_rank, place.node))
    address = addresses_of(there.fleet, there.names)
    left = {name: list(there.fleet.ports(name)) for name in there.names}
    master = left[there.names[0]].pop()
    workers = ",".join(f"{in_url(address[place.host])}:{left[place.host].pop()}" for place in where)
    found = {}
    for node, name in enumerate(there.names):
        here = sum(place.host == name for place in where)
        facts = there.fleet.facts(name)
        env = environment_there(launcher, job, attempt, facts, here, asked, address[name])
        env |= {"MASTER_ADDR": address[there.names[0]], "MASTER_PORT": str(master)}
        env = {key: value for key, value in env.items() if key not in job.env_names}
        found[name] = {**env, "JUPYTER_DIST_NODE": str(node), "JUPYTER_DIST_TF_WORKERS": workers}
    return found


def launcher_environment(
    job: Job, folder: RunFolder, asked: HostOptions, *, always: bool = False, path: str | None = None
) -> dict[str, str]:
    """Return the variables of the launcher itself.

    Its `ssh` is our wrapper with our options, for every caller.

    `always`: also if no other hosts are known yet. `path`: its PATH, before that `ssh` is added.
    """
    env = {"JUPYTER_DIST_RUN_ID": job.id, **({} if path is None else {"PATH": path})}
    if always or any(host["name"] != LOCAL for host in asked.hosts):
        script = ssh_script(folder, asked.settings())
        env["PATH"] = f"{script.parent}{os.pathsep}{path or os.environ.get('PATH', os.defpath)}"
    return env


def hosts_argument(job: Job, hosts: Sequence[Mapping[str, Any]]) -> str:
    """Return `h1:2,h2:1`: the hosts that are needed, and the number of ranks on each."""
    counts: dict[str, int] = {}
    for place in places(job.world_size, hosts):
        counts[place.host] = counts.get(place.host, 0) + 1
    return ",".join(f"{name}:{count}" for name, count in counts.items())
