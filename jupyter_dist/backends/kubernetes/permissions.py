"""The permissions that a run needs in the cluster, and those that the user lacks.

https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .api_server import Cluster, Refusal
from .job_kinds import Kind

__all__ = ["NEEDED", "lacking", "refused"]


NEEDED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("batch", "jobs"): ("create", "delete", "get"),
    ("", "services"): ("create", "get"),
    ("", "pods"): ("list", "watch"),
    ("", "pods/exec"): ("create", "get"),  # a WebSocket is a GET, and newer servers also require create
    ("", "pods/log"): ("get",),
    ("", "events"): ("list",),
}
"""Verbs by API group and resource, as in a Role: docs/kubernetes.md."""
_OF_POLICY = re.compile(r"^admission webhook |denied the request|denied request:")
"""Refusals by a policy, such as Gatekeeper's or a ValidatingAdmissionPolicy. No Role changes them."""


def lacking(cluster: Cluster) -> list[str]:
    """Return the missing verbs, such as `create pods/exec`. Raises what a Cluster raises."""
    found = []
    for (group, resource), verbs in NEEDED.items():
        for verb in verbs:
            if not _allowed(cluster, group, resource, verb):
                found.append(f"{verb} {resource}{'.' + group if group else ''}")
    return found


def _allowed(cluster: Cluster, group: str, resource: str, verb: str) -> bool:
    name, _, part = resource.partition("/")
    asked: dict[str, Any] = {"namespace": cluster.namespace, "verb": verb, "group": group, "resource": name}
    if part:
        asked["subresource"] = part
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    answer = cluster.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool(answer["status"].get("allowed"))


def refused(refusal: Refusal, title: str, namespace: str, kind: Kind) -> str:
    """Return a sentence about a refusal, without its full stop.

    `title`: of the requested object. `kind`: of the run's job.
    """
    where = f"the namespace {namespace!r}"
    if refusal.status == 401:
        return f"the API server does not know us ({refusal.message}): log in, and try `kubectl auth whoami`"
    if refusal.status == 403 and "quota" in refusal.message:
        return f"the quota of {where} does not allow it: {refusal.message}"
    if refusal.status == 403 and _OF_POLICY.search(refusal.message):
        return f"a policy of the cluster allows no such {title}: {refusal.message}"
    if refusal.status == 403:
        return (
            f"we may make no {title} in {where} ({refusal.message}): docs/kubernetes.md has the Role "
            "that is needed, for whoever administers the cluster"
        )
    if refusal.status == 404 and kind.is_kubeflows and "namespace" not in refusal.message:
        return f"the cluster knows no {title}: that needs {kind.needs}, and --kind job needs nothing"
    if refusal.status == 404:
        return f"{where} is not there ({refusal.message}): name another one with --namespace"
    return f"the cluster takes no such {title}: {refusal.message}"
