"""Why the cluster makes no object of a run's, in words for the user. Pure."""

from __future__ import annotations

from .cluster import Refusal
from .kinds import Kind

__all__ = ["refused"]


def refused(refusal: Refusal, title: str, namespace: str, kind: Kind) -> str:
    """A sentence without its end. `title`: of the object that was asked for; `kind`: of the run's job."""
    where = f"the namespace {namespace!r}"
    if refusal.status == 401:
        return f"the API server does not know us ({refusal.message}): log in, and try `kubectl auth whoami`"
    if refusal.status == 403 and "quota" in refusal.message:
        return f"the quota of {where} does not allow it: {refusal.message}"
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
