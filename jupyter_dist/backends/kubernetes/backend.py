"""The backend `kubernetes`: ranks in the pods of an Indexed Job, or of a Kubeflow job."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
from collections.abc import Mapping
from typing import Any, ClassVar

from ...errors import DistError, MissingEngine
from ...folder import RunFolder
from ...job import Job, Poll, State
from ..allocation import AllocatedRanks
from ..interface import Capabilities, Handle, Options
from ..ranks.placement import environments, places
from . import permissions
from .allocation import PodAllocation, new_handle
from .api_server import Cluster, Refusal, check_context
from .job_kinds import KINDS
from .manifests import job_object, service_object
from .options import KubernetesOptions

__all__ = ["Kubernetes"]


class Kubernetes(AllocatedRanks[PodAllocation]):
    """Ranks in pods. Our agent in each pod starts the ranks and forwards their output.

    The driver connects to the agent by exec. Agent and pods survive their driver for a while.
    """

    name: ClassVar[str] = "kubernetes"
    options: ClassVar[type[Options]] = KubernetesOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        outlives=True,
        apart=True,
        client=("kubernetes.client", "kubernetes.config", "urllib3", "websockets.asyncio.client"),
        visible=False,
        interrupts=True,
        sessions=True,
    )
    _allocation_type = PodAllocation

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        asked = KubernetesOptions(**options)
        for module in ("kubernetes", "websockets"):
            if importlib.util.find_spec(module) is None:
                cure = 'pip install "jupyter-dist[kubernetes]"'
                raise MissingEngine(f"the backend 'kubernetes' needs the package {module}: {cure}")
        if (asked.mailbox or "").startswith("s3:") and importlib.util.find_spec("s3fs") is None:
            cure = 'pip install "jupyter-dist[mailbox]" s3fs'
            raise MissingEngine(f"--mailbox {asked.mailbox} needs the package s3fs: {cure}")
        asked.check_roles(world_size)
        asked.check_ranks(world_size)
        if asked.context is not None:
            check_context(asked.context)
        given = asked.template().get("spec", {}).get("containers")
        by_runtime = KINDS[asked.kind].by_runtime
        if asked.image is None and not by_runtime and not any("image" in one for one in given or []):
            return ["without --image the pods have Python alone: no torch, and none of your libraries"]
        return []

    def detect(self) -> dict[str, Any]:
        """Ask the API server of the kubeconfig, and check the user's permissions there."""
        if importlib.util.find_spec("kubernetes") is None:
            return {}
        cluster = Cluster()
        try:
            version = cluster.ask("GET", "/version")["gitVersion"]
            found = {"Kubernetes": str(version).removeprefix("v"), "server": cluster.url}
            lacks = permissions.lacking(cluster)
        except (DistError, Refusal) as error:
            about = str(error).removesuffix(" Nothing was started.")
            return {"client": importlib.metadata.version("kubernetes"), "no_site": about}
        found["namespace"] = cluster.namespace
        kubeflows = {kind.path: kind.needs for kind in KINDS.values() if kind.is_kubeflows}
        if there := [needs for path, needs in kubeflows.items() if cluster.has(path)]:
            found["with"] = ", ".join(there)
        if lacks:
            without = ", and --mailbox goes without exec" if any("exec" in each for each in lacks) else ""
            found["no_site"] = (
                f"you may not {', '.join(lacks)} there: docs/kubernetes.md has the Role{without}"
            )
        return found

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        asked = KubernetesOptions(**job.options)
        slots = asked.slots(job.world_size)
        where = places(job.world_size, [{"name": f"<pod {i}>", "slots": n} for i, n in enumerate(slots)])
        envs = environments(job, attempt, asked.wanted(), where, None, {})
        owner = {"metadata": {"uid": "<of the job>"}}
        return {
            "context": asked.context or "the kubeconfig's current one, or the pod's own account",
            "namespace": asked.namespace or "the context's",
            "job": job_object(job, attempt),
            **({} if KINDS[asked.kind].is_kubeflows else {"service": service_object(job, attempt, owner)}),
            "ranks": [{"rank": place.rank, "env": env} for place, env in zip(where, envs, strict=True)],
        }

    def _new_allocation(
        self, job: Job, folder: RunFolder, attempt: int, before: PodAllocation | None
    ) -> PodAllocation:
        return PodAllocation(new_handle(job, attempt), job, folder)

    def _give_back(self, allocated: PodAllocation) -> None:
        try:
            allocated.free()
        except Refusal as refusal:
            print(f"{allocated.handle['name']} stays there: {refusal}", flush=True)

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        with self._lock:
            poll = super().poll(job, folder, handle, cursor)
            allocated = self._known(job, folder, handle)
            if poll.attempt is not None:
                allocated.goes_on(poll.attempt)
            return _unless_stranded(poll, allocated.stranded)

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        with self._lock:
            allocated = self._known(job, folder, handle)
            if allocated.connected:
                self._hosted.release(job, folder, handle)
            try:
                allocated.free()
            except (DistError, Refusal) as error:
                # Unneeded pods end by themselves, and the cluster deletes their owner a day later.
                print(f"it was not taken away: {error}", flush=True)
                cure = f"kubectl -n {handle['namespace']} delete {handle['resource']} {handle['name']}"
                return f"what it has made is still in the cluster, whose API server was away: {cure}"
            return None


def _unless_stranded(poll: Poll, why: str | None) -> Poll:
    """Return the agents' state, or that their ranks are lost. A failed rank is the reason itself."""
    states = {rank.state for rank in poll.ranks}
    if why is None or poll.state is not State.RUNNING or State.FAILED in states:
        return poll
    going = (State.RUNNING, State.PENDING)
    ranks = (dataclasses.replace(r, state=State.LOST) if r.state in going else r for r in poll.ranks)
    return dataclasses.replace(poll, state=State.FAILED, ranks=tuple(ranks), detail=why)
