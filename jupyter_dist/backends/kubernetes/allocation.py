"""A run's pods: requested, awaited, located, watched and deleted.

The attempt's folder records the pods, before the request and again when they run. Another of our processes
finds the pods by that record, and their Job by its name.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import DistError, LaunchError
from ...folder import RunFolder, write_json
from ...hosts.links.link import Link
from ...hosts.links.stream import StreamLink
from ...hosts.staged_files import Shipped
from ...job import Job
from ...worker import layout
from ..hosted import Hosting
from ..interface import Handle
from .api_server import Cluster, Refusal
from .exec_transport import ExecTransport, Site
from .job_kinds import KINDS, index_of
from .mailbox import PodMailbox
from .manifests import called, job_object, labelled, replicas, secret_name, service_object
from .options import KubernetesOptions
from .own_objects import OwnObjects
from .pod_status import ending_of, failure_of, is_up, never_starts, own_container, unready, waits_for
from .pod_watch import PodWatch

__all__ = ["PodAllocation", "new_handle"]

_ASK_WHY_EVERY_S = 2.0
_WHY_S = 5.0
"""Time in seconds after the ranks' end within which the reason for a pod's loss may appear."""
_RECORD = layout.hidden("kubernetes.json")


class PodAllocation:
    """The pods of one attempt, or of several successive attempts. Not for several threads."""

    def __init__(self, handle: Handle, job: Job, folder: RunFolder) -> None:
        self.handle, self._job, self._folder = handle, job, folder
        self._options = KubernetesOptions(**job.options)
        self._kind = KINDS[self._options.kind]
        self._replicas = replicas(self._options, job.world_size)
        self._limits = self._options.limits(job.world_size)
        self._closed: str | None = None
        """Why no new pods replace lost ones any more."""
        self._cluster = Cluster(handle["context"], handle["namespace"])
        self._objects = OwnObjects(self._cluster, job, handle)
        self._sites: list[Site] = []
        self._attempts: list[int] = [handle["attempt"]]
        self._watch: PodWatch | None = None
        where = self._options.mailbox
        self._mail = None if where is None else PodMailbox(where, folder)
        self._words: dict[str, str] = {}
        self._since = ""
        """When the job was created. The pods of an earlier TrainJob of the same name have the same labels."""
        self._told, self._looked = "the cluster is asked for pods", 0.0

    @classmethod
    def recall(cls, folder: RunFolder, job: Job, attempt: int) -> PodAllocation | None:
        """Return the recorded pods of an attempt, or None if none were requested."""
        try:
            known = json.loads((folder.attempt(attempt) / _RECORD).read_bytes())
        except FileNotFoundError:
            return None
        allocation = cls(known["handle"], job, folder)
        allocation._sites = [Site(**site) for site in known["sites"]]
        if allocation._sites:
            allocation._look_after()
        return allocation

    @property
    def connected(self) -> bool:
        """Whether all pods were running and located.

        Afterwards only the agents and the driver communicate.
        """
        return bool(self._sites)

    @property
    def gone(self) -> dict[str, str]:
        """The ended pods of ranks, each with the reason."""
        return {site.host: f"this pod, on node {site.node}, {why}" for site, why in self._ended(ranks=True)}

    @property
    def stranded(self) -> str | None:
        """Why the ranks cannot continue although their pods may still run.

        Either the pod of their mpirun has ended, or nothing creates pods for them any more.
        """
        for site, why in self._ended(ranks=False):
            return f"the launcher's pod, {site.name} on node {site.node}, {why}"
        if self._limits is not None and self.connected:
            gone = self.gone
            if sum(site.slots for site in self._sites if site.host not in gone) < self._limits.min_np:
                return self._why_closed()
        return None

    def _why_closed(self) -> str | None:
        if self._closed is None and time.monotonic() - self._looked > _ASK_WHY_EVERY_S:
            self._looked = time.monotonic()
            title = self._kind.title
            try:
                job = self._objects.job()
            except (DistError, Refusal) as error:
                if isinstance(error, Refusal) and error.status == 404:
                    self._closed = f"the {title} was deleted"
                return self._closed
            failed = failure_of(job)
            if job["metadata"].get("deletionTimestamp"):
                self._closed = f"the {title} was deleted"
            elif failed is not None:
                self._closed = f"the {title} has failed: {failed}"
        return self._closed

    def _ended(self, *, ranks: bool) -> Iterator[tuple[Site, str]]:
        pods = None if self._watch is None else self._watch.pods
        if pods is None:
            return
        for site in self._sites:
            pod = pods.get(site.uid)
            why = "was deleted" if pod is None else ending_of(pod)
            if why is not None and bool(site.slots) is ranks:
                yield site, why + self._said(site, pod)

    def _said(self, site: Site, pod: Mapping[str, Any] | None) -> str:
        """Return the last output of the mailbox relay in an ended pod.

        With exec, the driver has it already.
        """
        if self._mail is None or pod is None:
            return ""
        if site.uid not in self._words:
            self._words[site.uid] = self._last_words(pod)
        return self._words[site.uid]

    @property
    def _unready(self) -> str | None:
        """Return the nodes that have not reported to the cluster for a while."""
        pods = None if self._watch is None else self._watch.pods
        silent = {site.node for site in self._sites if unready((pods or {}).get(site.uid) or {})}
        return f"the cluster does not hear of node {', '.join(sorted(silent))}" if silent else None

    def whole(self) -> bool:
        """Return whether another attempt can use the pods."""
        return self.connected and (self._limits is not None or not self.gone) and self.stranded is None

    def write_down(self, attempt: int) -> None:
        """Record the pods as the pods of an attempt."""
        self.handle = {**self.handle, "attempt": attempt}
        self._attempts = [attempt]
        self._write()

    def goes_on(self, attempt: int) -> None:
        """Record the pods for another attempt too, which followed without a new submission."""
        if attempt not in self._attempts:
            self._attempts.append(attempt)
            self._write()

    def _write(self) -> None:
        sites = [dataclasses.asdict(site) for site in self._sites]
        for attempt in self._attempts:
            path = self._folder.attempt(attempt)
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(path / _RECORD, {"handle": self.handle, "sites": sites})

    def ask(self) -> None:
        """Create the Job and its service, unless they exist. Raises LaunchError, Unreachable."""
        if self._mail is not None:
            self._mail.leave_files()
        made = self._make(self._objects.jobs, job_object(self._job, self.handle["made_by"]))
        self._since = str(made["metadata"].get("creationTimestamp") or "")
        if self._mail is not None:
            secret = self._mail.secret(made, secret_name(self._job, self.handle["made_by"]))
            self._make(self._core("secrets"), secret)
        if not self._kind.is_kubeflows:
            self._make(self._core("services"), service_object(self._job, self.handle["made_by"], made))
        self._look_after()

    def _make(self, path: str, body: Mapping[str, Any]) -> Any:
        try:
            return self._objects.make(path, body)
        except LaunchError:
            self._forget()
            raise

    def _forget(self) -> None:
        """Delete what was created, as far as possible, before the submission fails."""
        try:
            self._delete()
        except (DistError, Refusal) as error:
            print(f"the Job {self.handle['name']} may still be there: {error}", flush=True)

    def asked(self) -> bool:
        """Return whether the cluster has the Job, as far as the driver can find out."""
        if self.connected:
            return True
        try:
            self._objects.job()
        except Refusal as refusal:
            if refusal.status == 404:
                return False
            raise DistError(refusal.message) from None
        return True

    def wait(self, seconds: float) -> str | None:
        """Return what is still missing, or None if all pods run. Blocks for at most `seconds`.

        Raises LaunchError.
        """
        if self._watch is None:
            self._look_after()
        assert self._watch is not None
        until = time.monotonic() + seconds
        while not self._all_up(self._watch):
            left_s = until - time.monotonic()
            if left_s <= 0:
                return self._watch.trouble or self._told
            self._watch.wait(left_s)
        return None

    def _all_up(self, watch: PodWatch) -> bool:
        """Return whether all pods run, and record them if so. Raises LaunchError if they cannot start."""
        pods = watch.pods
        if pods is not None:
            slots = self._options.most(self._job.world_size)
            wanted = sum(self._replicas.values()) or len(slots)
            live = [pod for pod in pods.values() if self._is_live(pod["metadata"])]
            for pod in live:
                why = never_starts(pod) or (ending_of(pod) if self._limits is None else None)
                if why is not None:
                    about = f"pod {pod['metadata']['name']} {why}{self._last_words(pod)}"
                    raise LaunchError(f"{about}. Nothing was started.")
            if self._limits is not None:
                if self._found(live):
                    return True
                wanted = len(self._options.slots(self._job.world_size))
            up = {index_of(pod, self._replicas): pod for pod in live if is_up(pod)}
            if self._limits is None and len(up) == wanted:
                more = [0] * (wanted - len(slots))
                self._sites = [_site(up[index], many) for index, many in enumerate([*slots, *more])]
                return True
            if time.monotonic() - self._looked > _ASK_WHY_EVERY_S:
                self._looked = time.monotonic()
                self._told = self._why(wanted, live)
        return False

    def _is_live(self, meta: Mapping[str, Any]) -> bool:
        created = str(meta.get("creationTimestamp") or self._since)
        return created >= self._since and not meta.get("deletionTimestamp")

    def _found(self, pods: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether enough pods for an elastic run's first ranks are running."""
        new = self._new(pods)
        if sum(site.slots for site in new) < self._job.world_size:
            return False
        self._sites = new
        return True

    def _new(self, pods: Sequence[Mapping[str, Any]]) -> list[Site]:
        """Return the running pods that are not recorded yet, in the order of their indices."""
        slots, known = self._options.most(self._job.world_size), {site.uid for site in self._sites}
        found = []
        for pod in sorted(pods, key=lambda pod: index_of(pod, self._replicas)):
            index, meta = index_of(pod, self._replicas), pod["metadata"]
            if is_up(pod) and meta["uid"] not in known and index < len(slots):
                before = sum(site.name == meta["name"] for site in self._sites)
                found.append(_site(pod, slots[index], before))
        return found

    def _now(self) -> list[dict[str, Any]]:
        """Return the current hosts of an elastic run. New hosts are recorded before they are used."""
        pods = None if self._watch is None else self._watch.pods
        new = self._new(list((pods or {}).values()))
        if new:
            self._sites += new
            self._write()
        gone = self.gone
        return [{"name": s.host, "slots": s.slots} for s in self._sites if s.host not in gone]

    def _last_words(self, pod: Mapping[str, Any]) -> str:
        path = f"{self._core('pods')}/{pod['metadata']['name']}/log"
        try:
            said = self._cluster.read(path, tailLines=5)
        except (DistError, Refusal):
            return ""  # the user may not read logs, or the pod has none
        return f"; its log ends with: {' '.join(said.split())[-300:]}" if said.strip() else ""

    def _why(self, wanted: int, pods: Sequence[Mapping[str, Any]]) -> str:
        """Return what the pods wait for. Raises LaunchError if the Job has failed."""
        try:
            job = self._objects.job()
        except Refusal as refusal:
            if refusal.status == 404:
                raise LaunchError(
                    f"the {self._kind.title} was deleted before its pods were up. Nothing was started."
                ) from None
            return refusal.message
        failed = failure_of(job)
        if failed is not None:
            raise LaunchError(
                f"the {self._kind.title} has failed before its pods were up: {failed}. Nothing was started."
            )
        names = {self.handle["name"], *(pod["metadata"]["name"] for pod in pods)}
        try:
            events = self._cluster.ask("GET", self._core("events"))["items"]
        except Refusal:
            events = []  # without permission for events, use what the pods' status says
        ours = [event for event in events if event.get("involvedObject", {}).get("name") in names]
        policy = job["spec"].get("runPolicy", job["spec"])
        return waits_for(wanted, pods, ours, bool(policy.get("suspend")))

    def hosting(self) -> Hosting:
        """Return the pods as hosts for our agents. The allocation must be connected."""
        assert self._watch is not None
        watch = self._watch
        return Hosting(
            hosts=[{"name": site.host, "slots": site.slots} for site in self._sites if site.slots],
            settings=self._options.agent_settings(),
            reach=self._reach,
            wanted=self._options.wanted(),
            trouble=lambda: watch.trouble or (self._mail and self._mail.trouble) or self._unready,
            gone=lambda: self.gone,
            why_s=_WHY_S,
            close=self._end_mail,
            elastic=self._limits,
            now=self._now,
        )

    def _reach(self, host: str, wish: Mapping[str, Any], files: Sequence[Shipped]) -> Link:
        site = next(site for site in self._sites if site.host == host)
        if self._mail is not None:
            return self._mail.reach(site, wish, files)
        return StreamLink(
            host,
            ExecTransport(self._cluster, site, self._options.python, self._options.other_python),
            wish,
            files,
        )

    def _end_mail(self) -> None:
        if self._mail is not None:
            self._mail.close()

    def leave(self) -> None:
        """Stop watching the pods."""
        if self._watch is not None:
            self._watch.close()

    def free(self) -> None:
        """Delete all of it. Repeatable. Raises an error with the reason if the deletion is impossible now."""
        self.leave()
        if not self.connected:
            self._end_mail()
        self._delete()

    def _delete(self) -> None:
        self._objects.delete()

    def _look_after(self) -> None:
        if self._watch is None:
            self._watch = PodWatch(self._cluster, labelled(self._job, self.handle["made_by"]))

    def _core(self, what: str) -> str:
        return f"/api/v1/namespaces/{self._cluster.namespace}/{what}"


def _site(pod: Mapping[str, Any], slots: int, before: int = 0) -> Site:
    meta, spec = pod["metadata"], pod["spec"]
    container = str(own_container(pod)["name"])
    return Site(meta["name"], meta["uid"], container, str(spec.get("nodeName")), slots, before)


def new_handle(job: Job, attempt: int) -> dict[str, Any]:
    """Return the handle of an attempt whose pods are about to be created."""
    asked = KubernetesOptions(**job.options)
    where = Cluster(asked.context, asked.namespace)
    return {
        "attempt": attempt,
        "made_by": attempt,
        "name": called(job, attempt),
        "resource": KINDS[asked.kind].resource,
        "context": asked.context,
        "namespace": where.namespace,
    }
