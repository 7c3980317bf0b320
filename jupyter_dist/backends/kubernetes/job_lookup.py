"""A job in the cluster that somebody else has created: its lookup by name, and the facts about its pods."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import InputError
from .api_server import Cluster, Refusal
from .job_kinds import KINDS, Kind, index_of
from .pod_status import ending_of

__all__ = [
    "Ranks",
    "find_job",
    "how_it_ended",
    "is_of",
    "pods_selector",
    "ranks_asked_for",
    "taken_apart",
    "written_as",
]

_JOBSET = "jobset.sigs.k8s.io"
_REPLICAS = {"pytorchjob": "pytorchReplicaSpecs", "tfjob": "tfReplicaSpecs", "mpijob": "mpiReplicaSpecs"}
_TYPES = ("Launcher", "Chief", "Master", "Worker", "PS", "Evaluator")
"""Kubeflow's types, in the ranks' order."""
_MOST_NAMED = 12


def taken_apart(name: str) -> tuple[str | None, str, str]:
    """Split `[NAMESPACE/]KIND/NAME` into (namespace, kind, name). Raises InputError.

    KIND is any name that kubectl accepts, such as `pytorchjobs` and `jobs.batch`.
    """
    parts = name.split("/")
    kind = parts[-2].lower().partition(".")[0].removesuffix("s") if len(parts) in (2, 3) else ""
    if kind not in KINDS or not all(parts):
        raise InputError(
            f"kubernetes:{name} names no job: it is kubernetes:[NAMESPACE/]KIND/NAME, with KIND one of "
            f"{', '.join(KINDS)}, such as kubernetes:{kind if kind in KINDS else 'pytorchjob'}/train"
        )
    return parts[0] if len(parts) == 3 else None, kind, parts[-1]


def find_job(cluster: Cluster, kind: str, name: str) -> dict[str, Any]:
    """Return the job's object.

    Raises InputError if it is missing or not readable, and what a Cluster raises.
    """
    of, where = KINDS[kind], f"the namespace {cluster.namespace!r}"
    path = f"{of.path}/namespaces/{cluster.namespace}/{of.resource}"
    try:
        found: dict[str, Any] = cluster.ask("GET", f"{path}/{name}")
        return found
    except Refusal as refusal:
        if refusal.status in (401, 403):
            raise InputError(
                f"we may not see the {of.title} {name!r} in {where} ({refusal.message}): docs/kubernetes.md "
                "has the Role that is needed"
            ) from None
        if refusal.status != 404:
            raise InputError(f"the {of.title} {name!r} cannot be seen: {refusal.message}") from None
    raise InputError(f"there is no {of.title} {name!r} in {where}, {_there(cluster, path, of)}")


def _there(cluster: Cluster, path: str, kind: Kind) -> str:
    try:
        items = cluster.ask("GET", path)["items"]
    except Refusal as refusal:
        if refusal.status == 404:
            return f"and the cluster knows no {kind.title}: that needs {kind.needs}"
        return f"and we may not list what there is ({refusal.message})"
    newest = sorted(items, key=lambda one: str(one["metadata"].get("creationTimestamp")), reverse=True)
    names = [str(one["metadata"]["name"]) for one in newest]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (
        f"which has {', '.join(names[:_MOST_NAMED])}{more}" if names else f"which has no {kind.title} at all"
    )


def pods_selector(kind: str, job: Mapping[str, Any]) -> str:
    """Return the label selector of the job's pods."""
    name = job["metadata"]["name"]
    if kind == "job":
        labels = job["spec"]["selector"]["matchLabels"]
        return ",".join(f"{key}={value}" for key, value in labels.items())
    if kind == "trainjob":  # pods that only download a model or data are not ranks
        return f"{_JOBSET}/jobset-name={name},{_JOBSET}/replicatedjob-name in (launcher,node)"
    return f"training.kubeflow.org/job-name={name}"


def is_of(uid: str, pod: Mapping[str, Any]) -> bool:
    """Return whether a pod with the job's labels belongs to that job.

    A job of another kind, or a later one, may have the same name.
    """
    titles = {kind.title for kind in KINDS.values() if kind.is_kubeflows}
    owners = pod["metadata"].get("ownerReferences") or []
    return all(owner["uid"] == uid for owner in owners if owner.get("kind") in titles)


def _replicas(kind: str, job: Mapping[str, Any]) -> dict[str, int]:
    told = job["spec"].get(_REPLICAS.get(kind, ""), {})
    known = [name for name in _TYPES if name in told]
    return {name: int(told[name].get("replicas", 1)) for name in [*known, *(set(told) - set(known))]}


def ranks_asked_for(kind: str, job: Mapping[str, Any]) -> int:
    """Return how many pods the job has at once. If its pods are numbered, return their total over time."""
    spec = job["spec"]
    if kind == "trainjob":
        return int((spec.get("trainer") or {}).get("numNodes") or 1)
    if kind == "job":
        at_once = int(spec.get("parallelism", 1))
        completions = int(spec.get("completions") or at_once)
        return max(1, completions if spec.get("completionMode") == "Indexed" else min(completions, at_once))
    return max(1, sum(_replicas(kind, job).values()))


class Ranks:
    """The assignment of pods to ranks, by the pod's index and its replica type.

    A pod without an index replaces a rank that failed or is gone, or becomes the next rank. `known`: the
    earlier assignment of pod UIDs to ranks.
    """

    def __init__(self, kind: str, job: Mapping[str, Any], known: Mapping[str, int]) -> None:
        self._replicas, self.of = _replicas(kind, job), dict(known)
        numbered = kind != "job" or job["spec"].get("completionMode") == "Indexed"
        self._first = ranks_asked_for(kind, job) if numbered else 0

    def take(self, pods: Iterable[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
        """Return the pods of each rank that has some, in the order of their creation."""
        found: dict[int, list[Mapping[str, Any]]] = {}
        ordered = sorted(
            pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"])
        )
        there = {pod["metadata"]["uid"]: pod for pod in ordered}
        for uid, pod in there.items():
            if uid not in self.of:
                self.of[uid] = self._rank_of(pod, there)
            found.setdefault(self.of[uid], []).append(pod)
        return found

    def _rank_of(self, pod: Mapping[str, Any], there: Mapping[str, Mapping[str, Any]]) -> int:
        try:
            return index_of(pod, self._replicas)
        except (LookupError, TypeError, ValueError):
            pass
        newest = {rank: there.get(uid) for uid, rank in self.of.items() if rank >= self._first}
        for rank, last in sorted(newest.items(), key=lambda one: one[0]):
            if last is None or last["status"].get("phase") == "Failed":
                return rank
        return max([self._first, *(rank + 1 for rank in newest)])


def written_as(kind: str, namespace: str, job: Mapping[str, Any]) -> str:
    """Return the text in place of the cell: the job, and the command of its pods, without variables."""
    title, name = KINDS[kind].title, job["metadata"]["name"]
    lines = [f"# the {title} {name} in the namespace {namespace}, which was made elsewhere"]
    told = job["spec"].get(_REPLICAS.get(kind, ""), {})
    if kind == "trainjob":
        trainer = job["spec"].get("trainer") or {}
        runtime = (job["spec"].get("runtimeRef") or {}).get("name")
        return "\n".join([*lines, _program(f"of the runtime {runtime}", trainer)])
    if kind == "job":
        return "\n".join([*lines, *_programs("", job["spec"])])
    for role, count in _replicas(kind, job).items():
        lines += _programs(f"{role} × {count}, ", told[role])
    return "\n".join(lines)


def _programs(role: str, spec: Mapping[str, Any]) -> list[str]:
    containers = spec["template"]["spec"]["containers"]
    return [_program(f"{role}{one['name']}", one) for one in containers]


def _program(what: str, container: Mapping[str, Any]) -> str:
    image = f" in {container['image']}" if container.get("image") else ""
    argv = [*(container.get("command") or []), *(container.get("args") or [])]
    return f"# {what}{image}" + (f"\n{shlex.join(map(str, argv))}" if argv else "")


def how_it_ended(
    title: str, job: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]
) -> tuple[bool, str] | None:
    """Return whether the job succeeded, and the reason from its conditions and pods. None while it runs."""
    name = job["metadata"]["name"]
    for condition in job.get("status", {}).get("conditions") or []:
        if condition.get("status") != "True":
            continue
        if condition["type"] in ("Complete", "Succeeded"):
            return True, f"the {title} {name} has succeeded"
        if condition["type"] == "Failed":
            why = ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
            said = [f"the {title} {name} has failed" + (f": {' '.join(why.split())}" if why else "")]
            failed = (pod for pod in pods if pod["status"].get("phase") == "Failed")
            said += [f"pod {pod['metadata']['name']} {ending_of(pod)}" for pod in failed]
            return False, "; ".join(said[:4])
    return None
