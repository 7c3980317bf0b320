"""The backend `local`: processes and GPUs of this machine."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from ..errors import InputError
from ..folder import RunFolder
from ..job import Job, Poll
from ._base import Capabilities, Handle, Options
from .ranks.defaults import cores, crowded, defaults, loopback
from .ranks.gpus import visible_gpus
from .ranks.ports import free_ports
from .ranks.processes import Processes, RankSpec
from .ranks.roles import Chief, Evaluator, ParameterServers, roles, tf_configs
from .ranks.serving import Serving

__all__ = ["Local", "LocalOptions"]


class LocalOptions(Options):
    """Options of the backend `local`."""

    gpus_per_worker: int | None = Field(
        default=None,
        ge=0,
        title="GPUs per worker",
        description="GPUs that each rank sees, numbered from 0 in the rank. "
        "Default: all visible GPUs, shared out evenly. 0 trains on the CPU.",
    )
    ps: ParameterServers = 0
    chief: Chief = False
    evaluator: Evaluator = False


class Local:
    """Ranks are children of the supervisor; their environment is what torchrun's and TF's users expect."""

    name: ClassVar[str] = "local"
    options: ClassVar[type[Options]] = LocalOptions
    capabilities: ClassVar[Capabilities] = Capabilities(warm=True)
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._processes = Processes()
        self._serving: Serving | None = None

    def default_np(self) -> int:
        return len(visible_gpus()) or 2

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        asked = LocalOptions(**options)
        wanted = asked.gpus_per_worker
        roles(world_size, ps=asked.ps, chief=asked.chief, evaluator=asked.evaluator)
        gpus = len(visible_gpus())
        takers = world_size - asked.ps  # a parameter server gets no GPU
        if wanted is None and gpus and takers > gpus:
            raise InputError(
                f"{takers} workers, but only {_count(gpus)} visible here: "
                f"use -np {gpus + asked.ps}, or --gpus-per-worker 0 to train on the CPU."
            )
        if wanted and wanted * takers > gpus:
            raise InputError(
                f"{takers} workers with --gpus-per-worker {wanted} need {wanted * takers} GPUs, "
                f"but {_count(gpus)} visible here."
            )
        return crowded(world_size)

    def detect(self) -> dict[str, Any]:
        return {"python": platform.python_version(), "cores": cores(), "gpus": len(visible_gpus())}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        # Ports are reserved when the ranks are about to start; 0 stands for "any free one".
        specs = _specs(job, attempt, [0] * (1 + job.world_size), visible_gpus(), os.environ)
        return {
            "argv": [job.python, "-m", "jupyter_dist.worker"],
            "cwd": job.cwd,
            "ranks": [{"rank": spec.rank, "env": spec.env} for spec in specs],
        }

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        ports = free_ports(1 + job.world_size)
        specs = _specs(job, attempt, ports, visible_gpus(), os.environ)
        self._serving = Serving(folder, attempt)
        return self._processes.start(job, folder, attempt, specs)

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        return None  # its processes end with their supervisor

    def poll(self, handle: Handle, cursor: Any) -> Poll:
        poll = self._processes.poll()
        return poll if self._serving is None else self._serving.settle(poll, self._processes.signal)

    def stop(self, handle: Handle, *, kill: bool) -> None:
        self._processes.signal(kill=kill)

    def ask(self, handle: Handle, rank: int | None, verb: str) -> None:
        if verb == "stacks":
            self._processes.stacks()

    def release(self, handle: Handle) -> None:
        pass  # the processes were all there was


def _count(gpus: int) -> str:
    return "no GPU is" if gpus == 0 else "1 GPU is" if gpus == 1 else f"{gpus} GPUs are"


def _specs(
    job: Job, attempt: int, ports: list[int], gpus: tuple[str, ...], environ: Mapping[str, str]
) -> list[RankSpec]:
    """The environment of each rank, as far as it differs from the notebook's. Pure.

    `ports`: one for MASTER_PORT, then one per rank for TF_CONFIG.
    """
    size = job.world_size
    asked = LocalOptions(**job.options)
    wanted = asked.gpus_per_worker
    tasks = roles(size, ps=asked.ps, chief=asked.chief, evaluator=asked.evaluator)
    share = len(gpus) // (size - asked.ps) if wanted is None else wanted
    configs = tf_configs(tasks, [f"127.0.0.1:{port}" for port in ports[1:]])
    specs = []
    given = 0
    for rank, task in enumerate(tasks):
        own = gpus[given : given + share] if task.type != "ps" else ()
        given += len(own)
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
            "JUPYTER_DIST_GPUS": str(share if task.type != "ps" else 0),
            **defaults(size, environ),
            **loopback(environ),
        }
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(own) or "-1"
        specs.append(RankSpec(rank, rank, socket.gethostname(), env))
    return specs
