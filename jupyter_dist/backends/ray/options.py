"""The options of the backend `ray`."""

from __future__ import annotations

import enum
import math
import os
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator

from ...cluster_form import Form
from ...errors import InputError
from ...option_fields import flag, matching
from ..elastic.options import ElasticOptions
from ..ranks.placement import RankEnvironmentOptions
from ..shared_options.agent import AgentOptions, Line, LocalFile, read_yaml
from ..shared_options.gpus import GpusPerWorker

__all__ = ["Communicator", "Placement", "RayOptions"]

_ADDRESS = r"auto|local|(ray://)?(\[[0-9a-fA-F:.]+\]|[^\s:/@]+):\d{1,5}"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)


class Placement(str, enum.Enum):
    """How Ray distributes the workers over the nodes."""

    PACK = "PACK"
    SPREAD = "SPREAD"
    STRICT_PACK = "STRICT_PACK"
    STRICT_SPREAD = "STRICT_SPREAD"


class Communicator(str, enum.Enum):
    """The communication backend of torch."""

    GLOO = "gloo"
    NCCL = "nccl"


def _size(value: object) -> object:
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    base = 1024 if found[3] else 1000
    return round(float(found[1]) * base ** " kmgt".index(found[2].lower() or " "))


def _resources(value: dict[str, float]) -> dict[str, float]:
    own = {"CPU": "--cpus-per-worker", "GPU": "--gpus-per-worker", "memory": "--memory-per-worker"}
    for name, amount in value.items():
        if name in own:
            raise ValueError(f"needs a resource of your own cluster. Set {name} with {own[name]}")
        if amount <= 0 or (amount > 1 and amount != int(amount)):
            raise ValueError(f"needs amounts above 0, and whole amounts above 1, got {name}={amount:g}")
    return value


class RayOptions(AgentOptions, ElasticOptions):
    """Options of the backend `ray`."""

    form: ClassVar[Form] = Form(
        first=("address", "np", "gpus_per_worker", "cpus_per_worker", "runtime_env"),
        places=("address",),
        sections={
            "Resources": "memory_per_worker resources accelerator_type placement_strategy",
            "Communication": "communicator",
        },
    )

    address: Annotated[str | None, matching(_ADDRESS, "auto, local, HOST:6379, or ray://HOST:10001")] = flag(
        None,
        "Address",
        "The Ray cluster to run on. HOST:6379 works on a node of the cluster. ray://HOST:10001 "
        "works from elsewhere. `auto` is the Ray of this machine, `local` a new Ray for this run. Default: "
        "RAY_ADDRESS, else auto, else local",
        value=("ADDRESS", "auto, local, HOST:6379 or ray://HOST:10001"),
    )
    gpus_per_worker: GpusPerWorker | None = flag(
        None,
        "GPUs per worker",
        "The GPUs that Ray assigns to each rank, numbered from 0 in the rank. 0.5: two ranks "
        "share one GPU. Default: 1 if the cluster has GPUs. 0: train on the CPU.",
        value=("N", "a whole number of at least 0, or a part such as 0.5"),
    )
    cpus_per_worker: float = flag(
        1,
        "CPUs per worker",
        "The CPUs that Ray reserves for each rank. A rank with more than one has as many threads. Default: 1",
        ge=0,
        metavar="N",
    )
    memory_per_worker: Annotated[int | None, BeforeValidator(_size)] = flag(
        None,
        "Memory per worker",
        "The memory that Ray reserves for each rank: 4G, 512M, or bytes",
        ge=1,
        value=("SIZE", "a size such as 4G or 512M"),
    )
    resources: Annotated[dict[str, float], AfterValidator(_resources)] = flag(
        {},
        "Resources",
        "A resource of your own cluster that each rank needs. Repeatable",
        metavar="NAME=AMOUNT",
    )
    accelerator_type: Line = flag(
        None,
        "Accelerator type",
        "The kind of GPU that the ranks need, by Ray's name: A100, H100, T4, …",
        value=("TYPE", "a kind of GPU, such as A100"),
    )
    placement_strategy: Placement = flag(
        Placement.PACK,
        "Placement",
        "PACK: few nodes. SPREAD: many. STRICT_PACK: one. STRICT_SPREAD: a node for each rank",
        metavar="STRATEGY",
    )
    runtime_env: LocalFile = flag(
        None,
        "Runtime environment",
        "A YAML or JSON file with Ray's runtime_env for the ranks: pip, env_vars, working_dir, …",
        value=("FILE", "the path of a YAML or JSON file"),
    )
    communicator: Communicator | None = flag(
        None,
        "Communicator",
        "The backend of torch.distributed in dist.init(): gloo or nccl. Default: nccl if "
        "every rank has a GPU, else gloo",
        metavar="NAME",
    )

    def bundle(self, gpus: float) -> dict[str, float]:
        """Return what Ray reserves for one rank with that many GPUs."""
        asked: dict[str, float] = {
            "CPU": self.cpus_per_worker,
            "GPU": gpus,
            "memory": self.memory_per_worker or 0,
            **self.resources,
        }
        if self.accelerator_type is not None:
            # Nodes have 1 of this resource. A small part of it is enough for the placement:
            # https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html
            asked[f"accelerator_type:{self.accelerator_type}"] = 0.001
        return {name: amount for name, amount in asked.items() if amount}

    def wanted(self, gpus: float) -> RankEnvironmentOptions:
        """Return the options for the ranks' environments. Only Ray assigns the GPUs.

        Ray gives the other CPUs of a node to other jobs. One CPU, the default, limits no threads.
        """
        threads = math.ceil(self.cpus_per_worker) if self.cpus_per_worker > 1 else None
        return RankEnvironmentOptions.of(self, gpus_per_worker=gpus, share_gpus=True, threads=threads)

    def environment(self) -> dict[str, str]:
        """Return the extra variables of agents, and so of the ranks."""
        return {} if self.communicator is None else {"JUPYTER_DIST_COMMUNICATOR": self.communicator.value}

    def read_runtime_env(self) -> dict[str, Any]:
        """Return the runtime environment. Raises InputError."""
        if self.runtime_env is None:
            return {}
        found = read_yaml("--runtime-env", self.runtime_env)
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
            raise InputError(
                f"--runtime-env: {self.runtime_env!r} must contain fields such as pip and working_dir"
            )
        folder = found.get("working_dir")
        if isinstance(folder, str) and "://" not in folder:
            found["working_dir"] = str((Path(self.runtime_env).parent / os.path.expanduser(folder)).resolve())
        return found
