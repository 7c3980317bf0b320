"""The backend of a run that shows a job in the cluster.

It reads the job's object, its pods, their events and logs.
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
from ...job import Job, RankState, State
from ..attached_job import AttachedJob, JobEnd, JobStatus, seconds, showing
from ..interface import Capabilities, Options
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
from .manifests import RUN
from .pod_status import waits_for
from .pod_watch import PodWatch

__all__ = ["AttachedPods", "SeenPodsOptions"]

_LOOK_EVERY_S = 1.0
_AFTER_END_S = {Rest.NONE: 0.0, Rest.GOES_ON: 5.0, Rest.REFUSED: 1.0, Rest.HINDERED: 300.0}
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


class _Client:
    """Reads one job, its pods and their logs. Each pod is a rank."""

    def __init__(self, job: Job, folder: RunFolder, cursor: Any) -> None:
        self._asked, self._folder, self._wanted = job.options, folder, job.world_size
        self._cluster = Cluster(job.options["context"], job.options["namespace"])
        self._kind = KINDS[job.options["kind"]]
        self._logs: dict[int, RankLog] = {}
        self._positions: dict[str, Any] = dict((cursor or {}).get("logs", {}))
        self._pods: dict[int, list[Mapping[str, Any]]] = {}
        self._shown: dict[int, RankState] = {}
        self._trouble: str | None = None
        self._waits: str | None = None
        found = self._found()
        self._looked = -math.inf
        self._gone, self._job = found is None, found or {}
        self._watch: PodWatch | None = None
        if found is not None:
            self._watch = PodWatch(self._cluster, pods_selector(job.options["kind"], found))
            self._ranks = Ranks(job.options["kind"], found, (cursor or {}).get("ranks", {}))

    @property
    def cursor(self) -> Any:
        if self._watch is None:
            return None
        self._positions |= {str(rank): log.position for rank, log in self._logs.items()}
        return {"ranks": self._ranks.of, "logs": dict(self._positions)}

    def look(self) -> JobStatus:
        try:
            self._update()
        except (DistError, Refusal) as error:
            self._trouble = str(error)
        pods, trouble = None, self._trouble
        if self._watch is not None:
            pods, trouble = self._watch.pods, trouble or self._watch.trouble
        if pods is not None:
            self._follow(pods)
        ranks = self._states()
        runs = bool(self._logs) and any(rank.started is not None for rank in ranks)
        troubles = [trouble, *(log.trouble for log in self._logs.values())]
        detail = "; ".join(list(dict.fromkeys(filter(None, (*troubles, self._waits))))[:2]) or None
        return JobStatus(State.RUNNING if runs else State.PENDING, ranks, detail, self._end(pods))

    def _end(self, pods: object) -> JobEnd | None:
        every = [pod for each in self._pods.values() for pod in each]
        ended = how_it_ended(self._kind.title, self._job, every) if self._job else None
        rest_s = max((_AFTER_END_S.get(log.rest, math.inf) for log in self._logs.values()), default=0.0)
        if pods is None and self._watch is not None:
            rest_s = max(rest_s, _UNSEEN_S)
        if ended is not None:
            at = seconds(self._job.get("status", {}).get("completionTime"))
            return JobEnd(State.SUCCEEDED if ended[0] else State.FAILED, ended[1], at, rest_s)
        if self._gone:
            why = f"the {self._kind.title} {self._asked['job']} was deleted"
            return JobEnd(State.STOPPED, why, None, rest_s)
        return None

    def _update(self) -> None:
        """Update the state of the job, and what its pods wait for."""
        now = time.monotonic()
        if self._gone or now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        found = self._found()
        self._gone, self._job = found is None, found or self._job
        self._trouble = None
        self._waits = None if self._gone else self._told_to_wait()

    def _found(self) -> Mapping[str, Any] | None:
        """Return the job. None if it is deleted, or if its name belongs to another job."""
        try:
            found: Mapping[str, Any] = self._cluster.ask("GET", _path(self._asked))
        except Refusal as refusal:
            if refusal.status == 404:
                return None
            raise
        return found if found["metadata"]["uid"] == self._asked["uid"] else None

    def _told_to_wait(self) -> str | None:
        """Return what the pods that do not run yet wait for."""
        newest = [pods[-1] for pods in self._pods.values()]
        over = [pod for pod in newest if pod["status"].get("phase") in ("Succeeded", "Failed")]
        others = [pod for pod in newest if pod not in over]
        wanted = self._wanted - len(over)
        if wanted <= 0 or (len(others) >= wanted and all(_runs(pod) for pod in others)):
            return None
        names = {self._asked["job"], *(pod["metadata"]["name"] for pod in others)}
        try:
            path = f"/api/v1/namespaces/{self._asked['namespace']}/events"
            events = self._cluster.ask("GET", path)["items"]
        except Refusal:
            events = []  # without permission for events, use what the pods' status says
        ours = [event for event in events if event.get("involvedObject", {}).get("name") in names]
        spec = self._job["spec"]
        return waits_for(wanted, others, ours, bool(spec.get("runPolicy", spec).get("suspend")))

    def _follow(self, pods: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin to read the log of each rank that has a pod."""
        there = self._ranks.take(pod for pod in pods.values() if is_of(self._asked["uid"], pod))
        self._pods = there
        for rank in there:
            if rank not in self._logs:
                path = self._folder.rank(0, rank).output
                of_rank = functools.partial(self._of_rank, rank)
                known = self._positions.get(str(rank))
                self._logs[rank] = RankLog(self._cluster, path, of_rank, self._kind.container, known)

    def _of_rank(self, rank: int) -> Sequence[Mapping[str, Any]]:
        return self._pods.get(rank, [])

    def _states(self) -> tuple[RankState, ...]:
        for rank, pods in self._pods.items():
            self._shown[rank] = _state_of(rank, pods, self._kind.container)
        for rank in self._shown.keys() - self._pods.keys():
            if self._shown[rank].state is State.RUNNING:  # its pod was deleted, and another one may follow
                self._shown[rank] = dataclasses.replace(self._shown[rank], state=State.PENDING)
        count = max([self._wanted, *(rank + 1 for rank in self._shown)])
        return tuple(self._shown.get(rank) or RankState(rank) for rank in range(count))

    def close(self) -> str | None:
        for log in self._logs.values():
            log.close()
        if self._watch is not None:
            self._watch.close()
        unread = {rank: log.why for rank, log in sorted(self._logs.items()) if log.why is not None}
        for rank, why in unread.items():
            more = f", and the logs of {len(unread) - 1} others" if len(unread) > 1 else ""
            return f"the log of rank {rank} is not all here: {why}{more}"
        return None


def _end(options: Mapping[str, Any]) -> None:
    """Delete the job with its pods."""
    body = {"propagationPolicy": "Background", "preconditions": {"uid": options["uid"]}}
    try:
        Cluster(options["context"], options["namespace"]).ask("DELETE", _path(options), body)
    except Refusal as refusal:
        if refusal.status not in (404, 409):  # the job is deleted, and its name belongs to another one
            raise DistError(f"we may not delete the job {options['job']!r}: {refusal}") from None


class AttachedPods(AttachedJob):
    """Shows the pods of one job, each as a rank."""

    name: ClassVar[str] = "kubernetes-job"
    options: ClassVar[type[Options]] = SeenPodsOptions
    capabilities: ClassVar[Capabilities] = showing(stop_grace_s=60.0)
    poll_interval_s: ClassVar[float] = 0.5

    def __init__(self) -> None:
        super().__init__(_Client, _end)

    @staticmethod
    def adopt(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run's job: fields of `Job`. `given`: context. Blocks.

        The `id` is that of the run which has created the job, if jupyter-dist did.

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
        made_by = (job["metadata"].get("labels") or {}).get(RUN)
        return {
            **({} if made_by is None else {"id": made_by}),
            "world_size": ranks_asked_for(kind, job),
            "source": written_as(kind, cluster.namespace, job),
            "label": called,
            "options": options.model_dump(),
        }


def _path(told: Mapping[str, Any]) -> str:
    kind = KINDS[told["kind"]]
    return f"{kind.path}/namespaces/{told['namespace']}/{kind.resource}/{told['job']}"


def _runs(pod: Mapping[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _state_of(rank: int, pods: Sequence[Mapping[str, Any]], container: str | None) -> RankState:
    """Return the state of a rank's newest pod. The rank's start is the start of its first pod."""
    told = [(told_of(pod, container) or {}).get("state") or {} for pod in pods]
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
