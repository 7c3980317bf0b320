"""The backend `ray`: ranks on the nodes of a Ray cluster, which allocates the resources and the GPUs."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, ClassVar

from ...errors import InputError, LaunchError, MissingEngine, Unreachable
from ...folder import RunFolder
from ...job import Job, Poll
from ...search.spec import Strategy
from ..allocation import AllocatedRanks
from ..interface import Capabilities, Extensions, Handle, Options, PlatformSearch
from ..ranks.placement import environments, places
from . import cluster_discovery, connection, local_cluster
from .allocation import RayAllocation
from .elastic import ElasticRay
from .options import Placement, RayOptions

__all__ = ["Ray"]


def _tune_packages(strategy: Strategy) -> list[tuple[str, str]]:
    """Return what Ray Tune needs. It has some strategies itself, and uses Optuna for the others."""
    found = [(name, 'pip install "ray[tune]"') for name in ("pandas", "pyarrow")]
    own = strategy in ("random", "grid")
    return found if own else [*found, ("Optuna", 'pip install "jupyter-dist[tune]"')]


class Ray(AllocatedRanks[RayAllocation]):
    """Ranks on Ray nodes. A placement group reserves the resources, with a node actor of ours on each node.

    An agent starts the ranks as separate processes that Ray does not manage. They survive their driver for a
    while.
    """

    name: ClassVar[str] = "ray"
    options: ClassVar[type[Options]] = RayOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        outlives=True, apart=True, visible=False, interrupts=True, sessions=True
    )
    extensions: ClassVar[Extensions] = Extensions(
        search=PlatformSearch(packages=_tune_packages, schedulers=True)
    )
    _allocation_type = RayAllocation

    def __init__(self) -> None:
        super().__init__()
        self._elastic = ElasticRay()

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        asked = RayOptions(**options)
        if importlib.util.find_spec("ray") is None:
            raise MissingEngine("the backend 'ray' needs Ray: pip install \"jupyter-dist[ray]\"")
        asked.check_roles(world_size)
        asked.read_runtime_env()
        asked.check_elastic(world_size)
        if asked.is_elastic and asked.placement_strategy is not Placement.PACK:
            raise InputError(
                f"--placement-strategy {asked.placement_strategy.value} does not work with --min-np "
                "or --max-np, because Ray then places the ranks one by one. Remove it"
            )
        return []

    def detect(self) -> dict[str, Any]:
        return cluster_discovery.detect()

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        asked = RayOptions(**job.options)
        gpus = asked.gpus_per_worker
        where = places(job.world_size, [{"name": "<a node>", "slots": job.world_size}])
        envs = environments(job, attempt, asked.wanted(gpus or 0), where, None, {})
        return {
            "address": asked.address
            or "RAY_ADDRESS, else the Ray of this machine, else a Ray of the run's own",
            "placement_group": {
                "name": _called(job, attempt),
                "bundles": [asked.bundle(gpus or 0)] * job.world_size,
                "strategy": asked.placement_strategy.value,
                **({"gpus": "1 for each rank where the cluster has some"} if gpus is None else {}),
            },
            "runtime_env": asked.read_runtime_env(),
            "ranks": [{"rank": place.rank, "env": env} for place, env in zip(where, envs, strict=True)],
        }

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        if RayOptions(**job.options).is_elastic:
            return self._elastic.submit(job, folder, attempt, _gpus)
        return super().submit(job, folder, attempt)

    def _new_allocation(
        self, job: Job, folder: RunFolder, attempt: int, before: RayAllocation | None
    ) -> RayAllocation:
        asked = RayOptions(**job.options)
        if before is not None:
            address, own = before.handle["address"], before.handle["embedded"]
        else:
            address, own = connection.find_address(asked.address), None
        if address is None:
            address, own = local_cluster.start(folder, asked, job.world_size)
        try:
            connection.connect(address, asked.read_runtime_env)
        except Unreachable as error:
            raise LaunchError(f"{error}. Nothing was started.") from None
        handle = {"address": address, "embedded": own}
        return RayAllocation({**handle, "group": _called(job, attempt), "gpus": _gpus(asked)}, job, folder)

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        if RayOptions(**job.options).is_elastic:
            return self._elastic.find(job, folder, attempt)
        return super().find(job, folder, attempt)

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        if handle.get("elastic"):
            return self._elastic.poll(job, folder, handle)
        return super().poll(job, folder, handle, cursor)

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        if handle.get("elastic"):
            self._elastic.stop(job, folder, handle, kill=kill)
        else:
            super().stop(job, folder, handle, kill=kill)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        if handle.get("elastic"):
            self._elastic.ask(job, folder, handle, rank, verb)
        else:
            super().ask(job, folder, handle, rank, verb)

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        if handle.get("elastic"):
            return self._elastic.release(job, folder, handle)
        with self._lock:
            allocated = self._known(job, folder, handle)
            told = self._hosted.release(job, folder, handle) if allocated.connected else None
            try:
                allocated.free()
            except Exception as error:  # our unused actors release the placement group themselves
                print(f"jupyter-dist could not report the end of the run to Ray: {error}", flush=True)
            if handle["embedded"] is not None:
                local_cluster.end(handle["embedded"])
            return told


def _called(job: Job, attempt: int) -> str:
    """Return the name of a placement group, in our namespace."""
    return f"{job.id}-{attempt}"


def _gpus(asked: RayOptions) -> float:
    """Return how many GPUs each rank gets. The default is one if the cluster has GPUs."""
    if asked.gpus_per_worker is not None:
        return asked.gpus_per_worker
    import ray

    return 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
