"""The backend `kubernetes`: ranks in the pods of an Indexed Job, or of a job of Kubeflow's."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ..errors import DistError, LaunchError, MissingEngine
from ..folder import RunFolder
from ..job import Job, Poll, RankState, State
from ._base import Capabilities, Handle, Options
from .hosted import Hosted, Hosting
from .on_kubernetes import permissions
from .on_kubernetes.cluster import Cluster, Refusal, check_context
from .on_kubernetes.job_objects import job_object, service_object
from .on_kubernetes.kinds import KINDS
from .on_kubernetes.kubernetes_options import KubernetesOptions
from .on_kubernetes.pod_room import PodRoom, new_handle
from .ranks.places import environments, places
from .ranks.roles import roles

__all__ = ["Kubernetes"]


class Kubernetes:
    """Our agent in each pod starts the ranks and sends on what they write. It is reached by exec, and
    outlives its driver a while, as the pods do."""

    name: ClassVar[str] = "kubernetes"
    options: ClassVar[type[Options]] = KubernetesOptions
    capabilities: ClassVar[Capabilities] = Capabilities(outlives=True, apart=True, visible=False)
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._room: PodRoom | None = None
        self._hosted = Hosted(self._hosting)
        self._stopping = False

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        asked = KubernetesOptions(**options)
        for module in ("kubernetes", "websockets"):
            if importlib.util.find_spec(module) is None:
                cure = 'pip install "jupyter-dist[kubernetes]"'
                raise MissingEngine(f"the backend 'kubernetes' needs the package {module}: {cure}")
        roles(world_size, ps=asked.ps, chief=asked.chief, evaluator=asked.evaluator)
        asked.check_ranks(world_size)
        if asked.context is not None:
            check_context(asked.context)
        given = asked.template().get("spec", {}).get("containers")
        by_runtime = KINDS[asked.kind].by_runtime
        if asked.image is None and not by_runtime and not any("image" in one for one in given or []):
            return ["without --image the pods have Python alone: no torch, and none of your libraries"]
        return []

    def detect(self) -> dict[str, Any]:
        """Asks the API server that the kubeconfig names, and what we may do there."""
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
            found["no_site"] = f"you may not {', '.join(lacks)} there: docs/kubernetes.md has the Role"
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

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        with self._lock:
            self._stopping = False
            before = (self._room or PodRoom.recall(folder, job, attempt - 1)) if attempt else None
            if before is not None and before.whole():
                before.write_down(attempt)
                self._room = before
                return self._begin(job, folder, attempt)
            if before is not None:
                self._leave(before)
            self._room = PodRoom(new_handle(folder, job, attempt), job)
            self._room.write_down(attempt)  # known before it is there: by that it is found again
            self._room.ask()
            return self._room.handle

    def _begin(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        assert self._room is not None
        return {**self._hosted.submit(job, folder, attempt), **self._room.handle}

    def _leave(self, room: PodRoom) -> None:
        """Have end what still runs in pods of which one was lost, and take them away."""
        if self._room is room and room.settled:
            self._hosted.release(room.handle)
        try:
            room.give_back()
        except Refusal as refusal:
            print(f"{room.handle['name']} stays there: {refusal}", flush=True)
        self._hosted = Hosted(self._hosting)

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        room = PodRoom.recall(folder, job, attempt)
        if room is None:
            return None
        try:
            return room.handle if room.settled or room.exists() else None
        finally:
            room.leave()

    def poll(self, handle: Handle, cursor: Any) -> Poll:
        with self._lock:
            room, job, folder = self._known(handle)
            if not room.settled:
                if self._stopping:
                    return Poll(State.STOPPED, _all(job, State.STOPPED))
                try:
                    waits = room.wait(self.poll_interval_s)
                except LaunchError as error:
                    return Poll(State.FAILED, _all(job, State.STOPPED), detail=str(error))
                if waits is not None:
                    return Poll(State.PENDING, _all(job, State.PENDING), detail=waits)
                room.write_down(handle["attempt"])
                self._begin(job, folder, handle["attempt"])
            return _unless_stranded(self._hosted.poll(handle, wait_s=self.poll_interval_s), room.stranded)

    def _known(self, handle: Handle) -> tuple[PodRoom, Job, RunFolder]:
        folder = RunFolder(Path(handle["folder"]))
        job = Job.from_json(json.loads(folder.job.read_bytes()))
        if self._room is None:
            self._room = PodRoom.recall(folder, job, handle["attempt"]) or PodRoom(handle, job)
        return self._room, job, folder

    def stop(self, handle: Handle, *, kill: bool) -> None:
        self._stopping = True  # before the lock: a poll may be waiting for the API server
        with self._lock:
            room, _, _ = self._known(handle)
            if room.settled:
                self._hosted.stop(handle, kill=kill)

    def ask(self, handle: Handle, rank: int | None, verb: str) -> None:
        with self._lock:
            if self._known(handle)[0].settled:
                self._hosted.ask(handle, rank, verb)

    def release(self, handle: Handle) -> str | None:
        with self._lock:
            room, _, _ = self._known(handle)
            if room.settled:
                self._hosted.release(handle)
            try:
                room.give_back()
            except (DistError, Refusal) as error:
                # The pods end themselves when nobody needs them, and what made them goes a day later.
                print(f"it was not taken away: {error}", flush=True)
                cure = f"kubectl -n {handle['namespace']} delete {handle['resource']} {handle['name']}"
                return f"what it has made is still in the cluster, whose API server was away: {cure}"
            return None

    def _hosting(self, job: Job, folder: RunFolder) -> Hosting:
        assert self._room is not None
        return self._room.hosting()


def _all(job: Job, state: State) -> tuple[RankState, ...]:
    return tuple(RankState(rank, state) for rank in range(job.world_size))


def _unless_stranded(poll: Poll, why: str | None) -> Poll:
    """What the agents say, or that their ranks are lost. A rank that has failed is the reason itself."""
    states = {rank.state for rank in poll.ranks}
    if why is None or poll.state is not State.RUNNING or State.FAILED in states:
        return poll
    going = (State.RUNNING, State.PENDING)
    ranks = (dataclasses.replace(r, state=State.LOST) if r.state in going else r for r in poll.ranks)
    return dataclasses.replace(poll, state=State.FAILED, ranks=tuple(ranks), detail=why)
