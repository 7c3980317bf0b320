"""The backend `local`: ranks on the CPUs and GPUs of this machine."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...errors import InputError
from ...folder import RunFolder
from ...job import Job, Poll, RankState
from ...processes.rank_processes import Processes, RankSpec
from ...text.format import count
from ...worker.gpus import by_local_rank
from ...worker.gpus.devices import visible_gpus
from ...worker.gpus.lease import GpuRequest
from ...worker.host.ports import free_ports
from ..interface import Capabilities, Handle, Options
from ..ranks.default_environment import cores, crowded, defaults, loopback
from ..ranks.local_gpus import (
    GpuWait,
    check_gpus,
    detected_gpus,
    gpu_count,
    gpu_ranks,
    gpu_wish,
    would_take,
)
from ..ranks.placement import horovod_environments, horovod_network, places
from ..ranks.server_ranks import Serving
from ..ranks.tensorflow_roles import roles, tf_configs
from .options import LocalOptions

__all__ = ["Local"]


class Local:
    """Ranks are children of the supervisor.

    Their environment matches torchrun's and TensorFlow's conventions.
    """

    name: ClassVar[str] = "local"
    options: ClassVar[type[Options]] = LocalOptions
    capabilities: ClassVar[Capabilities] = Capabilities(warm=True, interrupts=True, sessions=True)
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._processes = Processes()
        self._serving: Serving | None = None
        self._turn = GpuWait()

    def default_np(self) -> int:
        return gpu_ranks() or 2

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        asked = LocalOptions(**options)
        wanted = asked.gpus_per_worker
        asked.check_roles(world_size)
        gpus = len(visible_gpus())
        takers = world_size - asked.ps  # a parameter server gets no GPU
        if wanted is None and gpus and takers > gpus:
            raise InputError(
                f"{count(takers, 'worker')}, but only {_are(gpus)} visible here. "
                f"Use -np {gpus + asked.ps}, or --gpus-per-worker {_part(gpus, takers)} to share GPUs, or "
                "--gpus-per-worker 0 to train on the CPU."
            )
        wish = gpu_wish(asked, takers)
        needed = 0 if wish is None or wanted is None else wish.least(gpus)
        if needed > gpus:
            raise InputError(
                f"-np {world_size} with --gpus-per-worker {wanted} needs {count(needed, 'GPU')}, but "
                f"{_are(gpus)} visible here. Use a smaller -np or --gpus-per-worker."
            )
        return [*check_gpus(asked, takers), *crowded(world_size)]

    def detect(self) -> dict[str, Any]:
        return {"python": platform.python_version(), "cores": cores(), **detected_gpus()}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        gpus, told = would_take(_wish(job))
        # Ports are reserved shortly before the ranks start. 0 stands for "any free port".
        specs = _specs(job, attempt, [0] * (2 + job.world_size), [gpu.name for gpu in gpus], os.environ)
        return {
            "argv": [job.python, "-m", "jupyter_dist.worker"],
            "cwd": job.cwd,
            **told,
            "ranks": [{"rank": spec.rank, "env": spec.env} for spec in specs],
        }

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        self._serving = Serving(folder, attempt)

        def start(gpus: Sequence[str], env: Mapping[str, str]) -> Handle:
            specs = _specs(job, attempt, free_ports(2 + job.world_size), gpus, os.environ, env)
            return self._processes.start(job, folder, attempt, specs)

        wait = LocalOptions(**job.options).wait_for_gpus
        return self._turn.submit(job, _wish(job), wait=wait, start=start)

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        return None  # its processes end with their supervisor

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        waiting = self._turn.poll()
        if waiting is not None:
            return waiting
        poll = self._processes.poll()
        return poll if self._serving is None else self._serving.settle(poll, self._processes.signal)

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        if not self._turn.stop():
            self._processes.signal(kill=kill)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        if verb == "stacks":
            self._processes.stacks()
        elif verb == "interrupt" and not self._turn.stop():
            self._processes.signal(kill=False, interrupt=True)

    def replace(self, job: Job, folder: RunFolder, rank: int) -> RankState:
        """Start a rank of a session again, in place of one that has ended. Raises OSError."""
        return self._processes.replace(job, folder, rank)

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> None:
        self._turn.release()


def _part(gpus: int, takers: int) -> str:
    """Return the part of a GPU that each rank gets if all ranks share them, rounded down: 0.5, 0.33."""
    to_one = -(-takers // gpus)
    return f"{int(100 / to_one) / 100:g}"


def _are(gpus: int) -> str:
    return "no GPU is" if gpus == 0 else "1 GPU is" if gpus == 1 else f"{gpus} GPUs are"


def _wish(job: Job) -> GpuRequest | None:
    asked = LocalOptions(**job.options)
    return gpu_wish(asked, job.world_size - asked.ps, job)  # a parameter server gets no GPU


def _specs(
    job: Job,
    attempt: int,
    ports: list[int],
    gpus: Sequence[str],
    environ: Mapping[str, str],
    more: Mapping[str, str] | None = None,
) -> list[RankSpec]:
    """Return the environment of each rank, as far as it differs from the notebook's.

    `ports`: for MASTER_PORT, for Horovod's store, then one per rank for TF_CONFIG. `gpus`: the run's GPUs.
    `more`: further variables of each rank.
    """
    size = job.world_size
    asked = LocalOptions(**job.options)
    tasks = roles(size, ps=asked.ps, chief=asked.chief, evaluator=asked.evaluator)
    wish = _wish(job)
    shares = iter([] if wish is None else wish.shares_out(gpus))
    configs = tf_configs(tasks, [f"127.0.0.1:{port}" for port in ports[2:]])
    where = places(size, [{"name": "127.0.0.1", "slots": size}])
    meet = horovod_environments(where, "127.0.0.1", str(ports[1]))
    # Without these variables, each rank of a cell with Horovod would train alone.
    spans = size > 1 and not (asked.ps or asked.chief or asked.evaluator)
    # This is computed once: on a machine with GPUs, a rank without one needs a variable that hides them.
    told = bool(gpus) or bool(visible_gpus())
    specs = []
    for rank, task in enumerate(tasks):
        own = next(shares, ()) if task.type != "ps" else ()
        env = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(ports[0]),
            "TF_CONFIG": configs[rank],
            "JUPYTER_DIST_RUN_ID": job.id,
            "JUPYTER_DIST_ATTEMPT": str(attempt),
            "JUPYTER_DIST_GPUS": gpu_count(own, asked.gpus_per_worker),
            **defaults(size * job.at_once, environ),
            **loopback(environ),
            **(more or {}),
        }
        if spans:
            env |= {**meet[rank], **horovod_network(env)}
        if told:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(own) or "-1"
            if spans:
                by_local_rank.offer(env, gpus)
        specs.append(RankSpec(rank, rank, socket.gethostname(), env))
    return specs
