"""The backend of a run that shows a job which somebody else has created in the cluster. It creates nothing.

The backend reads the job's object, its pods, their events and logs. A failed request ends nothing: the job is
not ours.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...errors import DistError
from ...folder import RunFolder
from ...job import Job, Poll, RankState, State
from ..attached_job import AttachedJob, seconds
from ..interface import Capabilities, Handle, Options
from .api_server import Cluster, Refusal, check_context
from .job_kinds import KINDS
from .job_lookup import (
    Ranks,
    find_job,
    how_it_ended,
    is_of,
    pods_selector,
    ranks_asked_for,
    taken_apart,
    written_as,
)
from .logs import RankLog, Rest, told_of
from .pod_status import waits_for
from .pod_watch import PodWatch

__all__ = ["AttachedPods", "SeenPodsOptions"]

_LOOK_EVERY_S = 1.0
_AFTER_END_S = {Rest.GOES_ON: 5.0, Rest.REFUSED: 1.0, Rest.HINDERED: 300.0}
"""Seconds after the job's end that the backend waits for the rest of a log that is not being read."""
_UNSEEN_S = 60.0
"""Seconds after the job's end that the backend waits for a list of the pods."""
_PHASES = {
    "Running": State.RUNNING,
    "Succeeded": State.SUCCEEDED,
    "Failed": State.FAILED,
}


class SeenPodsOptions(Options):
    """The job and its cluster."""

    context: str | None = None
    namespace: str
    kind: str
    job: str
    uid: str


class AttachedPods(AttachedJob):
    """Shows the pods of one job, each as a rank. The handle is the job's name and options."""

    name: ClassVar[str] = "kubernetes-job"
    options: ClassVar[type[Options]] = SeenPodsOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        restarts=False, outlives=True, apart=True, visible=False, stacks=False, stop_grace_s=60.0
    )
    poll_interval_s: ClassVar[float] = 0.5

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._watch: PodWatch | None = None
        self._ranks: Ranks | None = None
        self._logs: dict[int, RankLog] = {}
        self._positions: dict[str, Any] = {}
        self._pods: dict[int, list[Mapping[str, Any]]] = {}
        self._shown: dict[int, RankState] = {}
        self._job: Mapping[str, Any] = {}
        self._trouble: str | None = None
        self._waits: str | None = None
        self._looked = -_LOOK_EVERY_S
        self._gone = False
        self._ended_since: float | None = None

    @staticmethod
    def adopt(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run's job: fields of `Job`. `given`: context. Blocks.

        Raises InputError if there is no such job, and other DistErrors.
        """
        namespace, kind, called = taken_apart(name)
        context = given.get("context")
        if context is not None:
            check_context(context)
        cluster = Cluster(context, namespace)
        job = find_job(cluster, kind, called)
        options = SeenPodsOptions(
            context=context,
            namespace=cluster.namespace,
            kind=kind,
            job=called,
            uid=job["metadata"]["uid"],
        )
        return {
            "world_size": ranks_asked_for(kind, job),
            "source": written_as(kind, cluster.namespace, job),
            "label": called,
            "options": options.model_dump(),
        }

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        return {"get": _path(job.options)}

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        try:
            self._open(job, folder, handle, cursor)
            self._look(folder, handle)
        except (DistError, Refusal) as error:
            self._trouble = str(error)
        if self._ranks is None and self._gone:
            return Poll(
                State.STOPPED, _ended(self._states(handle), False, None), final=True, detail=_gone(handle)
            )
        if self._ranks is None:
            return Poll(State.PENDING, self._states(handle), cursor=cursor, detail=self._trouble)
        assert self._watch is not None
        self._trouble = self._trouble or self._watch.trouble
        pods = self._watch.pods
        if pods is not None:
            self._follow(folder, handle, pods)
        self._positions |= {str(rank): log.position for rank, log in self._logs.items()}
        return self._as_poll(handle, {"ranks": self._ranks.of, "logs": dict(self._positions)})

    def _open(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> None:
        """Begin to watch the job, or continue for a process that began it."""
        if self._ranks is not None:
            return
        if self._cluster is None:
            self._cluster = Cluster(handle["context"], handle["namespace"])
        found = self._found(handle)
        if found is None:
            self._gone = True
            return
        self._job = found
        self._watch = PodWatch(self._cluster, pods_selector(handle["kind"], self._job))
        self._positions = dict((cursor or {}).get("logs", {}))
        self._ranks = Ranks(handle["kind"], self._job, (cursor or {}).get("ranks", {}))

    def _look(self, folder: RunFolder, handle: Handle) -> None:
        """Update the state of the job, and what its pods wait for."""
        now = time.monotonic()
        if self._gone or self._ranks is None or now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        found = self._found(handle)
        self._gone, self._job = found is None, found or self._job
        self._trouble = None
        self._waits = None if self._gone else self._told_to_wait(handle)

    def _found(self, handle: Handle) -> Mapping[str, Any] | None:
        """Return the job. None if it is deleted, or if its name belongs to another job."""
        assert self._cluster is not None
        try:
            found: Mapping[str, Any] = self._cluster.ask("GET", _path(handle))
        except Refusal as refusal:
            if refusal.status == 404:
                return None
            raise
        return found if found["metadata"]["uid"] == handle["uid"] else None

    def _told_to_wait(self, handle: Handle) -> str | None:
        """Return what the pods that do not run yet wait for."""
        newest = [pods[-1] for pods in self._pods.values()]
        over = [pod for pod in newest if pod["status"].get("phase") in ("Succeeded", "Failed")]
        others = [pod for pod in newest if pod not in over]
        wanted = handle["ranks"] - len(over)
        if wanted <= 0 or (len(others) >= wanted and all(_runs(pod) for pod in others)):
            return None
        assert self._cluster is not None
        names = {handle["job"], *(pod["metadata"]["name"] for pod in others)}
        try:
            events = self._cluster.ask("GET", f"/api/v1/namespaces/{handle['namespace']}/events")["items"]
        except Refusal:
            events = []  # without permission for events, use what the pods' status says
        ours = [event for event in events if event.get("involvedObject", {}).get("name") in names]
        spec = self._job["spec"]
        return waits_for(wanted, others, ours, bool(spec.get("runPolicy", spec).get("suspend")))

    def _follow(self, folder: RunFolder, handle: Handle, pods: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin to read the log of each rank that has a pod."""
        assert self._ranks is not None
        assert self._cluster is not None
        there = self._ranks.take(pod for pod in pods.values() if is_of(handle["uid"], pod))
        self._pods = there
        for rank in there:
            if rank not in self._logs:
                path = folder.rank(0, rank).output
                of_rank = functools.partial(self._of_rank, rank)
                container = KINDS[handle["kind"]].container
                known = self._positions.get(str(rank))
                self._logs[rank] = RankLog(self._cluster, path, of_rank, container, known)

    def _of_rank(self, rank: int) -> Sequence[Mapping[str, Any]]:
        return self._pods.get(rank, [])

    def _as_poll(self, handle: Handle, cursor: Any) -> Poll:
        title = KINDS[handle["kind"]].title
        pods = [pod for each in self._pods.values() for pod in each]
        ended = how_it_ended(title, self._job, pods)
        if ended is None and self._gone:
            ended = False, _gone(handle)
        over = ended is not None and self._is_over()
        ranks = self._states(handle)
        troubles = [self._trouble, *(log.trouble for log in self._logs.values())]
        if ended is not None and over:
            well, why = ended
            final = State.SUCCEEDED if well else State.STOPPED if self._gone else State.FAILED
            at = seconds(self._job.get("status", {}).get("completionTime"))
            return Poll(final, _ended(ranks, well, at), final=True, cursor=cursor, detail=why)
        runs = bool(self._logs) and any(rank.started is not None for rank in ranks)
        detail = "; ".join(list(dict.fromkeys(filter(None, (*troubles, self._waits))))[:2]) or None
        state = State.RUNNING if runs else State.PENDING
        # The cluster handles a failed rank: it may start another pod in its place.
        return Poll(state, ranks, replaces=True, cursor=cursor, detail=detail)

    def _is_over(self) -> bool:
        """Return whether the run has all output of the pods of an ended job."""
        self._ended_since = self._ended_since or time.monotonic()
        waited_s = time.monotonic() - self._ended_since
        rests = {log.rest for log in self._logs.values()} - {Rest.NONE}
        known = self._watch is not None and self._watch.pods is not None
        return (known or waited_s > _UNSEEN_S) and all(
            waited_s > _AFTER_END_S.get(rest, math.inf) for rest in rests
        )

    def _states(self, handle: Handle) -> tuple[RankState, ...]:
        for rank, pods in self._pods.items():
            self._shown[rank] = _state_of(rank, pods, handle["kind"])
        for rank in self._shown.keys() - self._pods.keys():
            if self._shown[rank].state is State.RUNNING:  # its pod was deleted, and another one may follow
                self._shown[rank] = dataclasses.replace(self._shown[rank], state=State.PENDING)
        count = max([handle["ranks"], *(rank + 1 for rank in self._shown)])
        return tuple(self._shown.get(rank) or RankState(rank) for rank in range(count))

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        """Delete the job with its pods, as the user asked."""
        cluster = Cluster(handle["context"], handle["namespace"])
        body: dict[str, Any] = {"propagationPolicy": "Background", "preconditions": {"uid": handle["uid"]}}
        try:
            cluster.ask("DELETE", _path(handle), body)
        except Refusal as refusal:
            if refusal.status not in (404, 409):  # the job is deleted, and its name belongs to another one
                raise DistError(f"we may not delete the job {handle['job']!r}: {refusal}") from None

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        for log in self._logs.values():
            log.close()
        if self._watch is not None:
            self._watch.close()
        unread = {rank: log.why for rank, log in sorted(self._logs.items()) if log.why is not None}
        for rank, why in unread.items():
            more = f", and the logs of {len(unread) - 1} others" if len(unread) > 1 else ""
            return f"the log of rank {rank} is not all here: {why}{more}"
        return None


def _gone(handle: Handle) -> str:
    return f"the {KINDS[handle['kind']].title} {handle['job']} was deleted"


def _path(told: Mapping[str, Any]) -> str:
    kind = KINDS[told["kind"]]
    return f"{kind.path}/namespaces/{told['namespace']}/{kind.resource}/{told['job']}"


def _runs(pod: Mapping[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _state_of(rank: int, pods: Sequence[Mapping[str, Any]], kind: str) -> RankState:
    """Return the state of a rank's newest pod. The rank's start is the start of its first pod."""
    told = [(told_of(pod, KINDS[kind].container) or {}).get("state") or {} for pod in pods]
    begun = [seconds(one.get("startedAt")) for state in told for one in state.values()]
    phase = str(pods[-1]["status"].get("phase"))
    ended = (told[-1].get("terminated") or {}).get("finishedAt") if phase in ("Succeeded", "Failed") else None
    return RankState(
        rank,
        _PHASES.get(phase, State.PENDING),
        host=pods[-1]["metadata"]["name"],
        started=min((when for when in begun if when is not None), default=None),
        ended=seconds(ended),
    )


def _ended(ranks: Sequence[RankState], well: bool, at: float | None) -> tuple[RankState, ...]:
    """Return the ranks of an ended job. Pods that still run are deleted, or no longer watched."""
    going = (State.PENDING, State.RUNNING)
    state = State.SUCCEEDED if well else State.STOPPED
    return tuple(
        dataclasses.replace(rank, state=state, ended=at or time.time()) if rank.state in going else rank
        for rank in ranks
    )
