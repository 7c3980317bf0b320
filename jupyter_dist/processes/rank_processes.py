"""Ranks as child processes of this process: their start or fork, their end, and signals to them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LaunchError
from ..folder import RunFolder, open_private
from ..job import Job, Poll, RankState, State
from ..worker.host.os_errors import reason
from ..worker.process_groups import interrupt_rank, kill_group, reap, reap_killed, spawn
from ..worker.stack_signals import signal_for
from . import forking

__all__ = ["PACKAGE_ROOT", "Processes", "RankSpec"]

PACKAGE_ROOT = str(Path(__file__).parents[2])
"""The folder that contains the package. `python -m` finds the package there even if it is not installed."""


@dataclass(frozen=True)
class RankSpec:
    """One rank to start, and its environment variables in addition to those of this process."""

    rank: int
    local_rank: int
    host: str
    env: Mapping[str, str]


class Processes:
    """The ranks of one attempt. Not thread-safe."""

    def __init__(self) -> None:
        self._ranks: list[RankState] = []
        self._signalled: set[int] = set()
        self._specs: dict[int, RankSpec] = {}
        self._places: dict[int, str] = {}

    def start(self, job: Job, folder: RunFolder, attempt: int, specs: list[RankSpec]) -> dict[str, Any]:
        """Start all ranks. Forks them if this process is itself a fork of the template.

        Raises LaunchError if the machine cannot start all ranks. No rank runs then.
        """
        self._ranks, self._signalled = [], set()
        self._specs = {spec.rank: spec for spec in specs}
        self._places = {rank: str(folder.rank(attempt, rank).path) for rank in self._specs}
        own = _own(job, folder)
        for spec in specs:
            started = time.time()
            try:
                pid = _start(job.python, folder, attempt, spec.rank, {**os.environ, **own, **spec.env})
            except OSError as error:
                self._give_up()
                raise LaunchError(
                    f"rank {spec.rank} of {len(specs)} could not be started: {reason(error)}. All were ended."
                ) from error
            self._ranks.append(
                RankState(spec.rank, State.RUNNING, pid, spec.host, spec.local_rank, started=started)
            )
        forking.dismiss_ranks()
        return {"pids": [rank.pid for rank in self._ranks]}

    def replace(self, job: Job, folder: RunFolder, rank: int) -> RankState:
        """Start a rank of attempt 0 again. Its earlier process is killed. Raises OSError."""
        index = next(index for index, state in enumerate(self._ranks) if state.rank == rank)
        before = self._ranks[index]
        if before.state is State.RUNNING and before.pid is not None:
            kill_group(before.pid)
            reap_killed(before.pid)
        spec, started = self._specs[rank], time.time()
        pid = _start(job.python, folder, 0, rank, {**os.environ, **_own(job, folder), **spec.env})
        self._ranks[index] = RankState(rank, State.RUNNING, pid, spec.host, spec.local_rank, started=started)
        return self._ranks[index]

    def _give_up(self) -> None:
        self.signal(kill=True)
        for rank in self._ranks:
            if rank.pid is not None:
                reap_killed(rank.pid)
        self._ranks = []

    def poll(self) -> Poll:
        """Return the states of all ranks. Does not block."""
        for index, rank in enumerate(self._ranks):
            if rank.state is State.RUNNING and rank.pid is not None:
                self._ranks[index] = self._reap(rank, rank.pid)
        running = tuple(r.pid for r in self._ranks if r.state is State.RUNNING and r.pid is not None)
        return Poll(RankState.overall(self._ranks), tuple(self._ranks), running)

    def _reap(self, rank: RankState, pid: int) -> RankState:
        try:
            reaped = reap(pid)
        except ChildProcessError:
            return dataclasses.replace(rank, state=State.LOST, ended=time.time())
        if reaped is None:
            return rank
        state = State.STOPPED if pid in self._signalled else State.FAILED
        if reaped.exit_code == 0:
            state = State.SUCCEEDED
        return dataclasses.replace(rank, state=state, ended=time.time(), **reaped._asdict())

    def signal(self, *, kill: bool, interrupt: bool = False) -> None:
        """Send SIGTERM to each running rank, or interrupt it.

        `kill`: send SIGKILL to its whole process group.
        """
        for rank in self._ranks:
            if rank.state is not State.RUNNING or rank.pid is None:
                continue
            self._signalled.add(rank.pid)
            if kill:
                kill_group(rank.pid)
                with contextlib.suppress(ProcessLookupError):  # a new rank may have no group yet
                    os.kill(rank.pid, signal.SIGKILL)
            else:
                with contextlib.suppress(ProcessLookupError):
                    if interrupt:
                        interrupt_rank(rank.pid, self._places[rank.rank])
                    else:
                        os.kill(rank.pid, signal.SIGTERM)

    def stacks(self) -> None:
        """Signal each running rank to append its stacks to `stacks.txt`."""
        for rank in self._ranks:
            if rank.state is State.RUNNING and rank.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank.pid, signal_for(rank.pid))


def _own(job: Job, folder: RunFolder) -> dict[str, str]:
    return {
        "JUPYTER_DIST_RUN": str(folder.path),
        "JUPYTER_DIST_PARENT": str(os.getpid()),
        "JUPYTER_DIST_CWD": job.cwd,
    }


def _start(python: str, folder: RunFolder, attempt: int, rank: int, env: Mapping[str, str]) -> int:
    log = open_private(folder.rank(attempt, rank).output, os.O_WRONLY | os.O_APPEND)
    try:
        if forking.is_warm():
            return forking.fork_rank(env, str(folder.supervisor_log))
        return spawn([python, "-m", "jupyter_dist.worker"], env, PACKAGE_ROOT, log)
    finally:
        os.close(log)
