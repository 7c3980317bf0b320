"""A run's objects in the cluster: created, read and deleted, unless somebody else has one of that name."""

from __future__ import annotations

import time
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

_LEAVES_S, _AGAIN_S = 60.0, 0.5
"""Time limit for the deletion of an earlier run's object of that name, and the interval of the checks."""


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

        If the cluster is still deleting another run's object of that name, the call waits for its end.
        Raises LaunchError.
        """
        kind, name = body["kind"], body["metadata"]["name"]
        until = time.monotonic() + _LEAVES_S
        while True:
            try:
                return self._cluster.ask("POST", path, body)
            except Refusal as refusal:
                if refusal.status != 409:
                    raise LaunchError(
                        f"{refused(refusal, kind, self._cluster.namespace, self._kind)}. Nothing was started."
                    ) from None
            if kind == "Secret":
                return None
            found = self._found(f"{path}/{name}")
            if found is not None and self._is_own(found):
                return found
            if (found is not None and not _leaves(found, body)) or time.monotonic() > until:
                break
            time.sleep(_AGAIN_S)
        raise LaunchError(
            f"the namespace {self._cluster.namespace!r} already has a {kind} {name!r}. Nothing was started. "
            "Choose another --name, or delete it: "
            f"kubectl delete {kind.lower()} {name} -n {self._cluster.namespace}"
        )

    def _found(self, path: str) -> Any:
        """Return the object at that path, or None if it is deleted meanwhile."""
        try:
            return self._cluster.ask("GET", path)
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            return None

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


def _leaves(found: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """Return whether the cluster deletes `found`, which has the name of `body`.

    It does so some time after the owner's end. If the owners of both have one name, the owner of `found` has
    ended.
    """
    owners = {_key(one): one["uid"] for one in body["metadata"].get("ownerReferences", ())}
    theirs = found["metadata"].get("ownerReferences") or ()
    return bool(found["metadata"].get("deletionTimestamp")) or any(
        owners.get(_key(one), one["uid"]) != one["uid"] for one in theirs
    )


def _key(owner: Mapping[str, Any]) -> tuple[str, str]:
    return owner["kind"], owner["name"]
