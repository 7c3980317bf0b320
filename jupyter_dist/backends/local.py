"""The backend `local`: processes and GPUs of this machine."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from ..errors import InputError
from ..folder import RunFolder
from ..job import Job, Poll
from ._base import Capabilities, Handle, Options
from ._gpus import visible_gpus
from ._ports import free_ports
from ._process import Processes, RankSpec

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


class Local:
    """Ranks are children of the supervisor; their environment is what torchrun's and TF's users expect."""

    name: ClassVar[str] = "local"
    options: ClassVar[type[Options]] = LocalOptions
    capabilities: ClassVar[Capabilities] = Capabilities(warm=True)
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._processes = Processes()

    def default_np(self) -> int:
        return len(visible_gpus()) or 2

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        wanted = LocalOptions(**options).gpus_per_worker
        gpus = len(visible_gpus())
        if wanted is None and gpus and world_size > gpus:
            raise InputError(
                f"{world_size} workers, but only {_count(gpus)} visible here: "
                f"use -np {gpus}, or --gpus-per-worker 0 to train on the CPU."
            )
        if wanted and wanted * world_size > gpus:
            raise InputError(
                f"{world_size} workers with --gpus-per-worker {wanted} need {wanted * world_size} GPUs, "
                f"but {_count(gpus)} visible here."
            )
        cores = _cores()
        if world_size > cores:
            return [f"{world_size} workers share {cores} CPU cores: each will run slower than alone."]
        return []

    def detect(self) -> dict[str, Any]:
        return {"python": platform.python_version(), "cores": _cores(), "gpus": len(visible_gpus())}

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
        return self._processes.start(job, folder, attempt, specs)

    def poll(self, handle: Handle, cursor: Any) -> Poll:
        return self._processes.poll()

    def stop(self, handle: Handle, *, kill: bool) -> None:
        self._processes.signal(kill=kill)


def _count(gpus: int) -> str:
    return "no GPU is" if gpus == 0 else "1 GPU is" if gpus == 1 else f"{gpus} GPUs are"


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _specs(
    job: Job, attempt: int, ports: list[int], gpus: tuple[str, ...], environ: Mapping[str, str]
) -> list[RankSpec]:
    """The environment of each rank, as far as it differs from the notebook's. Pure.

    `ports`: one for MASTER_PORT, then one per rank for TF_CONFIG.
    """
    size = job.world_size
    wanted = LocalOptions(**job.options).gpus_per_worker
    share = len(gpus) // size if wanted is None else wanted
    workers = [f"127.0.0.1:{port}" for port in ports[1:]]
    specs = []
    for rank in range(size):
        env = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(ports[0]),
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
            ),
            "JUPYTER_DIST_RUN_ID": job.id,
            "JUPYTER_DIST_ATTEMPT": str(attempt),
            "JUPYTER_DIST_GPUS": str(share),
        }
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[rank * share : (rank + 1) * share]) or "-1"
        if "OMP_NUM_THREADS" not in environ:
            env["OMP_NUM_THREADS"] = str(max(1, _cores() // size))
        if sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in environ:
            # Else gloo asks the resolver for this host's name, which on laptops has many answers.
            env["GLOO_SOCKET_IFNAME"] = "lo"
        if environ.get("MPLBACKEND", "").startswith("module://matplotlib_inline"):
            env["MPLBACKEND"] = "Agg"  # the notebook's draws into a notebook
        specs.append(RankSpec(rank, rank, socket.gethostname(), env))
    return specs
