"""A run's objects in the cluster: created, read and deleted, unless somebody else has one of that name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import LaunchError
from ...job import Job
from ..interface import Handle
from .api_server import Cluster, Refusal
from .job_kinds import KINDS
from .manifests import RUN
from .options import KubernetesOptions
from .permissions import refused

__all__ = ["OwnObjects"]


class OwnObjects:
    """The objects of one attempt. Every call blocks, and raises what a Cluster raises."""

    def __init__(self, cluster: Cluster, job: Job, handle: Handle) -> None:
        asked = KubernetesOptions(**job.options)
        self._cluster, self._run, self._name = cluster, job.id, str(handle["name"])
        self._kind, self._is_unique = KINDS[asked.kind], asked.job_name is None
        self.jobs = f"{self._kind.path}/namespaces/{cluster.namespace}/{self._kind.resource}"
        """Path of all jobs of this kind."""

    def make(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create an object, and return it. An interrupted submission may have created it.

        Raises LaunchError.
        """
        kind, name = body["kind"], body["metadata"]["name"]
        try:
            return self._cluster.ask("POST", path, body)
        except Refusal as refusal:
            if refusal.status != 409:
                raise LaunchError(
                    f"{refused(refusal, kind, self._cluster.namespace, self._kind)}. Nothing was started."
                ) from None
        if kind == "Secret":
            return None
        found = self._cluster.ask("GET", f"{path}/{name}")
        if self._is_own(found):
            return found
        raise LaunchError(
            f"the namespace {self._cluster.namespace!r} already has a {kind} {name!r}. Nothing was started. "
            "Choose another --name, or delete it: "
            f"kubectl delete {kind.lower()} {name} -n {self._cluster.namespace}"
        )

    def job(self) -> Any:
        """Return the job. Raises Refusal with the status 404 if there is none, or if it is another run's."""
        found = self._cluster.ask("GET", f"{self.jobs}/{self._name}")
        if self._is_own(found):
            return found
        raise Refusal(404, "NotFound", f"the {self._kind.title} {self._name} is not of the run {self._run}")

    def delete(self) -> None:
        """Delete the job, and with it all that it owns. Repeatable. Raises Refusal."""
        # The API server ignores the query of a request with a body.
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        try:
            if not self._is_unique:
                body["preconditions"] = {"uid": self.job()["metadata"]["uid"]}
            self._cluster.ask("DELETE", f"{self.jobs}/{self._name}", body)
        except Refusal as refusal:
            if refusal.status not in (404, 409):
                raise

    def _is_own(self, found: Any) -> bool:
        return self._is_unique or (found["metadata"].get("labels") or {}).get(RUN) == self._run
