"""A launcher on this machine (torchrun, horovodrun, mpirun, srun): start it, follow it, stop it.

A backend of this kind has its options, one pure function that makes the launcher's argv, and this:

    submit   self._launched = Launched(job, folder, attempt)
             self._launched.start(argv, environment("mpi", job, attempt, np), name="mpirun")
    request  shown(argv, env)
    poll, stop, stacks and release are methods of `Follower`

With hosts, `Staged` (one launcher here) and `PerHostLauncher` (one on each host) have the same methods.

The argv ends in `worker_argv(job)`, which the launcher starts `np` times in the working directory
PACKAGE_ROOT. A rank reads its place from the launcher's own variables (worker/launchers/launched_rank.py).
`exit.json` records each rank's end. Only error texts use a launcher's output.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...errors import LaunchError
from ...folder import RunFolder, make_private, open_private
from ...job import Job, Poll, RankState, State
from ...processes.leftovers import end_leftovers
from ...processes.rank_processes import PACKAGE_ROOT
from ...processes.umask import current_umask
from ...worker import layout
from ...worker.host.os_errors import reason
from ...worker.launchers.launched_rank import LAUNCHER
from ...worker.process_groups import kill_group
from ..interface import Handle
from ..ranks.default_environment import defaults
from ..ranks.local_gpus import GpuWait, gpu_wish, seen_by_all
from ..shared_options.gpus import LauncherGpuOptions
from .rank_control import LocalRanks, RankControl
from .rank_files import RankFiles, asked, judged, was_told

__all__ = ["Follower", "LocalLauncher", "environment", "last_words", "shown", "worker_argv"]

_EXIT_FILES_S = 2.0
"""Seconds after the end of a launcher or a rank within which `exit.json` may appear."""
_GENTLE_S = 10.0
_LAST_BYTES = 4096
_LINGER_S = 0.5
"""Seconds that a failed run's launcher may live after the end of all ranks: some launchers sleep a while."""

_STALE = re.compile(
    r"OMPI_COMM_WORLD_\w+|OMPI_UNIVERSE_SIZE|PMIX_(?!MCA_)\w+|PMI_(RANK|SIZE|FD|PORT|ID)|TORCHELASTIC_\w+|"
    r"MPI_LOCAL(RANKID|NRANKS)|HOROVOD_((LOCAL_|CROSS_)?(RANK|SIZE)|HOSTNAME|(GLOO_)?RENDEZVOUS_\w+)|"
    r"SLURM_(PROCID|LOCALID|NODEID|GTIDS|TASK_PID|STEP_\w+|STEPID|DISTRIBUTION)|"
    r"(LOCAL_|GROUP_)?RANK|(LOCAL_)?WORLD_SIZE|TF_CONFIG|JUPYTER_DIST_(GPUS|PARENT|TF_WORKERS)"
)
"""Variables of a launcher for its ranks. If a launcher started the notebook, they belong to another run."""


def worker_argv(job: Job) -> list[str]:
    """Return the command that the launcher starts as a rank on this machine."""
    return [job.python, "-m", "jupyter_dist.worker"]


def environment(
    launcher: str, job: Job, attempt: int, per_host: int, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the launcher's variables, as far as they differ from the notebook's. Pure.

    `launcher`: torchrun, horovod or mpi. `per_host`: the ranks that share this machine.
    """
    environ = os.environ if environ is None else environ
    env = {
        LAUNCHER: launcher,
        "JUPYTER_DIST_RUN_ID": job.id,
        "JUPYTER_DIST_ATTEMPT": str(attempt),
        "JUPYTER_DIST_CWD": job.cwd,
    }
    return {**env, **defaults(max(1, per_host) * job.at_once, environ)}


def shown(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return a launcher's start as JSON, for `request`."""
    return {"argv": list(argv), "cwd": PACKAGE_ROOT, "env": dict(env)}


class LocalLauncher:
    """One launcher, the child of this process, and its ranks, for one attempt. Not for several threads.

    `elastic`: the launcher determines the number of ranks. `replaces`: it replaces failed ranks. `restarts`:
    how often it restarts all ranks as a new attempt. `reach`: controls the ranks, by default on this machine.
    """

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        attempt: int,
        *,
        elastic: bool = False,
        replaces: bool = False,
        restarts: int = 0,
        reach: RankControl | None = None,
    ) -> None:
        self._reach = reach or LocalRanks(folder.id)
        self._job, self._folder, self._attempt = job, folder, attempt
        self._elastic, self._replaces, self._restarts = elastic, replaces, restarts
        self._files = RankFiles(folder, 0 if elastic else job.world_size, replaced=replaces)
        self._process: subprocess.Popen[bytes] | None = None
        self._name = ""
        self._explain: Callable[[str], str] = last_words
        self._aborted: Callable[[str], int | None] = lambda log: None
        self._to_launcher = self._gentle = self._killed = False
        self._asked_at: float | None = None
        self._over_at: float | None = None
        self._done_at: float | None = None
        self._gone: dict[tuple[str | None, int], float] = {}
        self._told: set[int | None] = set()
        self._final: Poll | None = None

    @property
    def log(self) -> Path:
        """The launcher's own output."""
        return self._folder.attempt(self._attempt) / layout.launcher_log()

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        name: str,
        stop_launcher: bool = False,
        gentle: bool = False,
        explain: Callable[[str], str] | None = None,
        aborted: Callable[[str], int | None] | None = None,
    ) -> dict[str, Any]:
        """Start the launcher. Returns the run's handle. Raises LaunchError if it cannot be started.

        `name`: the launcher's name in messages. `stop_launcher`: send SIGTERM to the launcher instead of the
        ranks, because it would replace ended ranks. `gentle`: let the launcher end by itself, because a
        killed one leaves something behind. `explain`: finds the reason for a failure in the launcher's
        output. `aborted`: finds the exit code in the end of a rank's log, if that rank made the launcher kill
        all ranks.
        """
        self._name, self._to_launcher, self._gentle = name, stop_launcher, gentle
        self._explain, self._aborted = explain or last_words, aborted or self._aborted
        make_private(self.log.parent)
        log = open_private(self.log, os.O_WRONLY | os.O_APPEND)
        inherited = {name: value for name, value in os.environ.items() if not _STALE.fullmatch(name)}
        try:
            self._process = subprocess.Popen(
                list(argv),
                env={**inherited, **self._own(), **env},
                cwd=PACKAGE_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
            )
        except OSError as error:
            raise LaunchError(f"{name} cannot be started ({argv[0]!r}): {reason(error)}") from error
        finally:
            os.close(log)
        return {"launcher": self._process.pid}

    def _own(self) -> dict[str, str]:
        return {"JUPYTER_DIST_RUN": str(self._folder.path), "JUPYTER_DIST_UMASK": f"{current_umask():o}"}

    def poll(self) -> Poll:
        """Return the state of the attempt, from the launcher's process and the ranks' files. Never blocks."""
        if self._final is not None:
            return self._final
        assert self._process is not None, "start comes first"
        code = self._process.poll()
        if code == -signal.SIGKILL and self._asked_at is None and self._done_at is None:
            self._killed = True  # by somebody else
        attempt = self._files.newest(self._attempt)
        ranks = self._files.look(attempt)
        running = [rank for rank in ranks if rank.state is State.RUNNING]
        if code is not None:
            if self._over(running):
                ranks = self._files.look(attempt)  # the wait has delivered the last of their files
            else:
                code = None
        ranks = [self._as_aborted(rank, attempt, over=code is not None) for rank in ranks]
        states = self._noticed(judged(ranks, self._asked_at, over=code is not None))
        if self._killed:
            states = [_died_along(rank) for rank in states]
        if self._elastic:
            states = _known(states)
        newest = attempt if attempt > self._attempt else None
        if code is None:
            self._tell_late_ones(running)
            pids = (self._process.pid, *(r.pid for r in running if r.pid is not None))
            if not isinstance(self._reach, LocalRanks):
                pids = pids[:1]
            replaces = self._replaces or attempt - self._attempt < self._restarts
            if not (replaces and self._asked_at is None):
                self._do_not_linger(states)
            return Poll(State.RUNNING, tuple(states), pids=pids, attempt=newest, replaces=replaces)
        end_leftovers(self._job.id)  # leftovers may occupy ports that the next attempt needs
        state, detail = self._judge(code, states)
        self._final = Poll(state, tuple(states), attempt=newest, detail=detail)
        return self._final

    def _as_aborted(self, rank: RankState, attempt: int, *, over: bool) -> RankState:
        """Return the rank as failed if its log has an abort code, and its end is not recorded.

        The log's last change is the time of the failure: other ranks fail later.
        """
        if rank.state is not State.RUNNING or not (over or (rank.host, rank.pid) in self._gone):
            return rank
        try:
            with self._folder.rank(attempt, rank.rank).output.open("rb") as file:
                about = os.fstat(file.fileno())
                file.seek(max(0, about.st_size - _LAST_BYTES))
                code = self._aborted(file.read().decode("utf-8", "replace"))
        except OSError:
            return rank
        if code is None:
            return rank
        return dataclasses.replace(rank, state=State.FAILED, exit_code=code & 0xFF, ended=about.st_mtime)

    def _tell_late_ones(self, running: Sequence[RankState]) -> None:
        """Signal the ranks that were still starting when the stop was requested."""
        if self._asked_at is None or self._to_launcher or not isinstance(self._reach, LocalRanks):
            return
        late = [rank for rank in running if rank.pid not in self._told]
        self._told |= {rank.pid for rank in late}
        self._reach.signal(late, kill=False)

    def _noticed(self, ranks: list[RankState]) -> list[RankState]:
        """Mark a rank as lost if it was killed together with the process that would report its end."""
        now = time.time()
        for index, rank in enumerate(ranks):
            if rank.pid is None or rank.exit_code is not None or rank.signal is not None:
                continue
            if rank.state is State.RUNNING and self._reach.gone(rank):
                self._gone.setdefault((rank.host, rank.pid), now)
            since = self._gone.get((rank.host, rank.pid))
            if since is not None and now - since > _EXIT_FILES_S and not asked(since, self._asked_at):
                ranks[index] = dataclasses.replace(rank, state=State.LOST, ended=since)
        return ranks

    def _do_not_linger(self, ranks: Sequence[RankState]) -> None:
        states = {rank.state for rank in ranks}
        if states == {State.SUCCEEDED} or not all(state.ended for state in states):
            self._done_at = None
            return
        assert self._process is not None
        self._done_at = self._done_at or time.monotonic()
        waited = time.monotonic() - self._done_at
        if waited > (_GENTLE_S if self._gentle else 2 * _LINGER_S):
            kill_group(self._process.pid)
        elif waited > _LINGER_S:
            self._process.terminate()

    def _over(self, running: Sequence[RankState]) -> bool:
        """Return whether all results of the ranks are available after the launcher's end. May stop ranks."""
        now = time.monotonic()
        self._over_at = self._over_at or now
        return self._reach.settled(running, now - self._over_at)

    def _judge(self, code: int, ranks: Sequence[RankState]) -> tuple[State, str | None]:
        states = {rank.state for rank in ranks}
        if code == 0 and (self._elastic or states == {State.SUCCEEDED}):
            return State.SUCCEEDED, None
        if code == -signal.SIGPIPE and states == {State.SUCCEEDED}:
            return State.SUCCEEDED, None  # MPICH's launcher may end like this after Comm.Spawn
        # If one rank succeeded and others were lost, the launcher stopped those, and has the reason.
        if State.FAILED in states or (State.LOST in states and State.SUCCEEDED not in states):
            return State.FAILED, None
        if self._killed:
            return State.FAILED, f"{self._name} was ended by SIGKILL, and its ranks with it"
        if self._asked_at is not None:
            return State.STOPPED, None
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        try:
            said = self._explain(self.log.read_text("utf-8", "replace"))
        except OSError:
            said = ""
        return State.FAILED, f"{self._name} ended with {how}" + (f": {said}" if said else "")

    def signal(self, *, kill: bool, interrupt: bool = False) -> None:
        """Ask the ranks to end (`interrupt`: with SIGINT; `kill`: end them, and the launcher)."""
        process = self._process
        if process is None or self._final is not None:
            return
        self._asked_at = self._asked_at or time.time()
        ranks = self._running()
        to_ranks = bool(ranks) and (interrupt or not self._to_launcher)
        self._told |= {rank.pid for rank in ranks}
        if kill:
            if process.poll() is None and not (self._gentle and len(ranks) == self._job.world_size):
                kill_group(process.pid)
            self._reach.signal(ranks, kill=True)
        elif not (to_ranks and self._reach.signal(ranks, kill=False, interrupt=interrupt)):
            process.terminate()

    def stacks(self) -> None:
        self._reach.stacks(self._running())

    def _running(self) -> list[RankState]:
        ranks = self._files.look(self._files.newest(self._attempt))
        return [rank for rank in ranks if rank.state is State.RUNNING]

    def release(self) -> str | None:
        """Do nothing: the run has no resources beyond its processes."""
        return None


class _Attempt(Protocol):
    """What `Follower` needs of an attempt, wherever its ranks run."""

    def poll(self) -> Poll: ...
    def signal(self, *, kill: bool, interrupt: bool = False) -> bool | None: ...
    def stacks(self) -> None: ...
    def release(self) -> str | None: ...


class Follower:
    """The part of a backend that follows `_launched`, the attempt that its `submit` has started."""

    _launched: _Attempt | None = None
    _turn: GpuWait | None = None

    def start_with_gpus(
        self,
        job: Job,
        asked: LauncherGpuOptions,
        start: Callable[[Sequence[str], Mapping[str, str]], Handle],
        *,
        takers: int | None = None,
    ) -> Handle:
        """Start a launcher on this machine once its ranks have their GPUs. `takers` of the ranks need GPUs.

        `start` gets the names of the GPUs, and the GPU variables of the launcher's environment.
        """
        self._turn = self._turn or GpuWait()
        return self._turn.submit(
            job,
            gpu_wish(asked, job.world_size if takers is None else takers, job),
            wait=asked.wait_for_gpus,
            start=lambda gpus, env: start(gpus, {**env, **seen_by_all(gpus)}),
        )

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        return None  # the launcher ends with its supervisor

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        waiting = None if self._turn is None else self._turn.poll()
        if waiting is not None:
            return waiting
        assert self._launched is not None, "submit comes first"
        return self._launched.poll()

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        self._end(kill=kill)

    def _end(self, *, kill: bool, interrupt: bool = False) -> None:
        if self._turn is not None and self._turn.stop():
            return
        assert self._launched is not None, "submit comes first"
        self._launched.signal(kill=kill, interrupt=interrupt)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        if verb == "stacks" and self._launched is not None:
            self._launched.stacks()
        elif verb == "interrupt":
            self._end(kill=False, interrupt=True)

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        told = None if self._launched is None else self._launched.release()
        if self._turn is not None:
            self._turn.release()
        return told


def _died_along(rank: RankState) -> RankState:
    along = rank.state is State.LOST or (rank.state is State.FAILED and was_told(rank))
    return dataclasses.replace(rank, state=State.STOPPED) if along else rank


def _known(ranks: list[RankState]) -> list[RankState]:
    """Return the ranks without the last ones that never started: an elastic run may be smaller than `np`."""
    while len(ranks) > 1 and ranks[-1].started is None:
        ranks = ranks[:-1]
    return ranks


def last_words(text: str) -> str:
    """Return the last line that contains a word."""
    lines = [line.strip() for line in text.split("\n")]
    said = [line for line in lines if re.search(r"\w", line)]
    return said[-1][:300] if said else ""
