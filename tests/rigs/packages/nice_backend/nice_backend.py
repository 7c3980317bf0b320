"""Somebody else's backend: ranks as processes of this machine that leave the rest of it in peace."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import replace
from typing import Any, ClassVar

from jupyter_dist.backends import STACK_SIGNAL, Capabilities, Options, flag
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, Poll, RankState, State


class NiceOptions(Options):
    niceness: int = flag(5, "Niceness", "19 gives way to everybody.", ge=0, le=19)


class Nice:
    name: ClassVar[str] = "nice"
    options: ClassVar[type[Options]] = NiceOptions
    capabilities: ClassVar[Capabilities] = Capabilities()
    poll_interval_s: ClassVar[float] = 0.1

    def default_np(self) -> int:
        return 2

    def check(self, world_size: int, options: Any) -> list[str]:
        return []

    def detect(self) -> dict[str, Any]:
        return {"cores": os.cpu_count()}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        size = str(job.world_size)
        env = {"JUPYTER_DIST_RUN_ID": job.id, "JUPYTER_DIST_ATTEMPT": str(attempt), "GROUP_RANK": "0"}
        env |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1"}
        argv = ["nice", "-n", str(job.options["niceness"]), job.python, "-m", "jupyter_dist.worker"]
        ranks = map(str, range(job.world_size))
        return {"argv": argv, "ranks": [{**env, "RANK": rank, "LOCAL_RANK": rank} for rank in ranks]}

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> dict[str, Any]:
        request, self._processes, self._ranks = self.request(job, attempt), [], []
        with socket.create_server(("127.0.0.1", 0)) as free:
            env = {**os.environ, "MASTER_PORT": str(free.getsockname()[1])}
        env |= {"JUPYTER_DIST_RUN": str(folder.path), "JUPYTER_DIST_CWD": job.cwd}
        env["JUPYTER_DIST_PARENT"] = str(os.getpid())  # the ranks end when the supervisor does
        for number, own in enumerate(request["ranks"]):
            process = subprocess.Popen(request["argv"], env={**env, **own}, start_new_session=True)
            self._processes.append(process)
            rank = RankState(number, State.RUNNING, process.pid, socket.gethostname(), number)
            self._ranks.append(replace(rank, started=time.time()))
        self._stopping = False
        return {"pids": [process.pid for process in self._processes]}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> None:
        return None  # the ranks end with their supervisor

    def poll(self, job: Job, folder: RunFolder, handle: Any, cursor: Any) -> Poll:
        for number, (rank, process) in enumerate(zip(self._ranks, self._processes, strict=True)):
            code = process.poll()
            if rank.state is State.RUNNING and code is not None:
                failed = State.STOPPED if self._stopping else State.FAILED
                rank = replace(rank, state=failed if code else State.SUCCEEDED, ended=time.time())
                told = (code, None) if code >= 0 else (None, -code)
                self._ranks[number] = replace(rank, exit_code=told[0], signal=told[1])
        states = {rank.state for rank in self._ranks}
        order = (State.RUNNING, State.FAILED, State.STOPPED, State.SUCCEEDED)
        running = tuple(rank.pid for rank in self._ranks if rank.pid and not rank.state.ended)
        return Poll(next(s for s in order if s in states), tuple(self._ranks), pids=running)

    def stop(self, job: Job, folder: RunFolder, handle: Any, *, kill: bool) -> None:
        self._stopping = True
        self._send(signal.SIGKILL if kill else signal.SIGTERM)

    def ask(self, job: Job, folder: RunFolder, handle: Any, rank: int | None, verb: str) -> None:
        if verb == "stacks":
            self._send(STACK_SIGNAL)

    def release(self, job: Job, folder: RunFolder, handle: Any) -> None:
        pass  # nothing is held

    def _send(self, signum: int) -> None:
        for process in self._processes:
            process.send_signal(signum)  # nothing happens to one that has ended
