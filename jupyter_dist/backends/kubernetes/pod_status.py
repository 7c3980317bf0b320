"""The cluster's facts about pods, in words for the user: what a pod waits for, and why it ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["ending_of", "failure_of", "is_up", "never_starts", "own_container", "unready", "waits_for"]

_OWN = "JUPYTER_DIST_POD_UID"
"""The variable that all containers of ranks have (manifests.py)."""
_NEVER_PULLED = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull")
_NOT_CREATED = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff")
_TELLING = ("FailedScheduling", "FailedCreate", "FailedMount", "FailedAttachVolume", "Failed", "Pending")
"""Reasons of events that hinder a pod or its Job. `Pending` is Kueue's."""


def _all_states(pod: Mapping[str, Any]) -> Iterable[tuple[str, str, Mapping[str, Any]]]:
    """Yield the name, the kind and the details of each container's state. Init containers precede."""
    status = pod.get("status", {})
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        for kind, told in (container.get("state") or {}).items():
            yield str(container.get("name") or ""), kind, told or {}


def own_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the container of the ranks: the one with our variables, or else the first one.

    A service mesh may put its proxy first, as Linkerd's proxy-await and Istio's
    holdApplicationUntilProxyStarts do. https://github.com/linkerd/linkerd2/issues/7122
    """
    return next(_own(pod), pod["spec"]["containers"][0])


def _own(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for container in pod.get("spec", {}).get("containers") or []:
        if any(each.get("name") == _OWN for each in container.get("env") or []):
            yield container


def is_up(pod: Mapping[str, Any]) -> bool:
    """Return whether exec into the pod is possible."""
    deleted = pod.get("metadata", {}).get("deletionTimestamp")
    if pod.get("status", {}).get("phase") != "Running" or deleted:
        return False
    names = [container.get("name") for container in _own(pod)]
    return any(
        "running" in (told.get("state") or {})
        for told in pod["status"].get("containerStatuses") or []
        if not names or told.get("name") in names
    )


def unready(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod's node has been silent for a while.

    The cluster then marks its pods as not ready.
    """
    ready = (one for one in pod.get("status", {}).get("conditions") or [] if one.get("type") == "Ready")
    return is_up(pod) and any(one.get("status") != "True" for one in ready)


def ending_of(pod: Mapping[str, Any]) -> str | None:
    """Return how a running pod has ended or is ending, as text after its name. None if it continues."""
    status = pod.get("status", {})
    disrupted: Mapping[str, Any] = next(filter(_is_disruption, status.get("conditions") or []), {})
    why = _sentence(
        status.get("reason") or disrupted.get("reason"), status.get("message") or disrupted.get("message")
    )
    if pod["metadata"].get("deletionTimestamp"):
        return f"is taken away: {why}" if why else "was deleted, or evicted"
    if status.get("phase") not in ("Failed", "Succeeded"):
        return None
    if why:
        return f"has failed: {why}"
    ended = [(name, told) for name, kind, told in _all_states(pod) if kind == "terminated"]
    # The cluster sorts the containers by name. One that has done its work is not the reason for a failure.
    for name, told in sorted(ended, key=lambda one: (not one[1].get("exitCode"), _is_initial(pod, one[0]))):
        reason = str(told.get("reason") or "Error")
        memory = ": it had not enough memory (--memory)" if reason == "OOMKilled" else ""
        who = f" (container {name})" if len(ended) > 1 or _is_initial(pod, name) else ""
        return f"has ended: {reason}, exit code {told.get('exitCode')}{memory}{who}"
    return "has ended"


def _is_initial(pod: Mapping[str, Any], name: str) -> bool:
    return any(one.get("name") == name for one in pod.get("status", {}).get("initContainerStatuses") or [])


def _is_disruption(condition: Mapping[str, Any]) -> bool:
    """Return whether the condition is a disruption.

    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
    """
    return condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"


def _sentence(reason: str | None, message: str | None) -> str:
    return ": ".join(" ".join(part.split()) for part in (reason, message) if part)


def failure_of(job: Mapping[str, Any]) -> str | None:
    """Return the controller's reason for a Job's failure, or None if the Job has not failed."""
    for condition in job.get("status", {}).get("conditions") or []:
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            return _sentence(condition.get("reason"), condition.get("message")) or "it has failed"
    return None


def waits_for(
    wanted: int, pods: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]], suspended: bool
) -> str:
    """Return what is missing until all pods run, in the cluster's own words if there are any."""
    up = sum(map(is_up, pods))
    known = {pod["metadata"]["name"]: pod for pod in pods if not is_up(pod)}
    said = [_of_containers(pod) for pod in known.values()]
    said += [_of_scheduler(pod) for pod in known.values()]
    if len(pods) < wanted:  # once the pods exist, the events of their creation are outdated
        said += [
            _of_event(event)
            for event in _newest(events)
            if event.get("involvedObject", {}).get("kind") != "Pod"
        ]
    told = list(dict.fromkeys(filter(None, said)))
    if not told:
        names = set(known)
        told = [
            _of_event(event)
            for event in _newest(events)
            if event.get("involvedObject", {}).get("name") in names and event.get("type") == "Warning"
        ]
    if not told and suspended:
        told = ["Kueue has not admitted the Job yet"]
    counted = f"{up} of {wanted} pods are up" if wanted > 1 else "the pod is not up yet"
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return f"{counted}: {'; '.join(told[:3])}{more}" if told else counted


def never_starts(pod: Mapping[str, Any]) -> str | None:
    """Return why the pod can never start, as text after its name."""
    for _, kind, told in _all_states(pod):
        if kind == "waiting" and told.get("reason") == "InvalidImageName":
            return f"never starts: {_sentence('InvalidImageName', told.get('message'))}"
    return None


def _of_containers(pod: Mapping[str, Any]) -> str:
    for _, kind, told in _all_states(pod):
        reason = str(told.get("reason") or "")
        if kind == "waiting" and reason in (*_NEVER_PULLED, *_NOT_CREATED):
            return f"{reason}: {' '.join(str(told.get('message') or '').split())}".rstrip(": ")
    return ""


def _of_scheduler(pod: Mapping[str, Any]) -> str:
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = " ".join(str(condition.get("message") or "").split())
            return f"{condition.get('reason')}: {said} ({_asked(pod)})"
    return ""


def _asked(pod: Mapping[str, Any]) -> str:
    """Return the resources that the pod requests from a node."""
    resources = own_container(pod).get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    listed = ", ".join(f"{name.rpartition('/')[2]} {amount}" for name, amount in sorted(amounts.items()))
    selector = ", ".join(f"{name}={value}" for name, value in (pod["spec"].get("nodeSelector") or {}).items())
    where = f" on a node with {selector}" if selector else ""
    return f"each pod asks for {listed or 'nothing'}{where}"


def _of_event(event: Mapping[str, Any]) -> str:
    return f"{event.get('reason')}: {' '.join(str(event.get('message') or '').split())}"


def _newest(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the newest event of each kind that hinders."""
    found: dict[str, Mapping[str, Any]] = {}
    for event in sorted(events, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or "")):
        if event.get("reason") in _TELLING:
            found[str(event["reason"])] = event
    return list(found.values())
