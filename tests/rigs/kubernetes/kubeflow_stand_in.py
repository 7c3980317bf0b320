"""A stand-in for Kubeflow's training operator: it makes the pods and services of PyTorchJobs and TFJobs.

python kubeflow_stand_in.py URL TOKEN CA

The real one is a Go program that is not to be had here. What this one does was written after its documents
and its labels:
https://github.com/kubeflow/training-operator/blob/release-1.9/pkg/apis/kubeflow.org/v1/common_types.go.
mpi_stand_in.py and trainer_stand_in.py stand in for Kubeflow's other operators.
As that one, it makes pods that are missing, takes away those of which the replicas are no longer wanted, and
makes anew those that have failed where their restart policy says so, until the job has ended. A job has
succeeded with its first replica (an elastic one with any), and failed with any that may not be made anew. It
knows nothing of suspending, back-off or clean-up beyond what owner references bring about.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.rigs.kubernetes import mpi_stand_in, trainer_stand_in
from tests.rigs.kubernetes.api import Api, Refusal
from tests.rigs.kubernetes.operating import follow, set_conditions

__all__ = ["KINDS", "main"]

KINDS = {"PyTorchJob": ("pytorchjobs", "pytorch", 23456), "TFJob": ("tfjobs", "tensorflow", 2222)}
_GROUP = "kubeflow.org"
_LABEL = "training.kubeflow.org"


def _make(api: Api, told: Mapping[str, Any], kind: str) -> None:
    """Reconcile one job until it has ended, or is gone."""
    path, meta = f"/apis/{_GROUP}/v1/{KINDS[kind][0]}", told["metadata"]
    mine = f"/apis/{_GROUP}/v1/namespaces/{meta['namespace']}/{KINDS[kind][0]}/{meta['name']}"
    set_conditions(api, path, told, {"type": "Created", "reason": f"{kind}Created"})
    while True:
        try:
            told = api.get(mine)
        except Refusal as refusal:
            if refusal.status == 404:
                return
            raise
        if told["metadata"]["uid"] != meta["uid"] or told["metadata"].get("deletionTimestamp"):
            return
        condition = _reconcile(api, told, kind)
        if condition is not None:
            return set_conditions(api, path, told, condition)
        time.sleep(0.3)


def _reconcile(api: Api, told: Mapping[str, Any], kind: str) -> dict[str, str] | None:
    """Have the pods and services there that are wanted; returns the condition with which the job has ended.
    https://github.com/kubeflow/training-operator/blob/release-1.9/pkg/controller.v1/common/pod.go"""
    meta, core = told["metadata"], f"/api/v1/namespaces/{told['metadata']['namespace']}"
    listed = api.get(f"{core}/pods", labelSelector=f"{_LABEL}/job-name={meta['name']}")["items"]
    # Another operator's jobs may have its name, and their pods that label.
    owned = [
        pod for pod in listed if any(o["uid"] == meta["uid"] for o in pod["metadata"]["ownerReferences"])
    ]
    pods = {pod["metadata"]["name"]: pod for pod in owned}
    specs, first, ended = _specs(told, kind), True, None
    for role, spec in specs.items():
        phases = []
        for index in range(spec["replicas"]):
            name = f"{meta['name']}-{role.lower()}-{index}"
            pod = pods.pop(name, None)
            if pod is None:
                _create(api, told, kind, role, index)
                continue
            phases.append(_phase(pod))
            if pod["status"].get("phase") == "Failed" and _is_made_anew(pod, spec, kind):
                with contextlib.suppress(Refusal):
                    api.delete(f"{core}/pods/{name}")
        done = phases.count("Succeeded")
        if first and (done == spec["replicas"] or (done and told["spec"].get("elasticPolicy"))):
            said = f"{kind} {meta['name']} is successfully completed."
            return {"type": "Succeeded", "reason": f"{kind}Succeeded", "message": said}
        if "Failed" in phases and not _may_restart(spec):
            said = f"{kind} {meta['name']} is failed because 1 {role} replica(s) failed."
            ended = {"type": "Failed", "reason": f"{kind}Failed", "message": said}
        first = False
    for name in pods:  # of replicas that are wanted no more
        with contextlib.suppress(Refusal):
            api.delete(f"{core}/pods/{name}")
    return ended


def _specs(told: Mapping[str, Any], kind: str) -> Any:
    return told["spec"][f"{KINDS[kind][1]}ReplicaSpecs".replace("tensorflow", "tf")]


def _phase(pod: Mapping[str, Any]) -> str:
    """As the operator counts it: one that is about to go has failed."""
    phase = str(pod["status"].get("phase"))
    return "Failed" if phase == "Running" and pod["metadata"].get("deletionTimestamp") else phase


def _may_restart(spec: Mapping[str, Any]) -> bool:
    return bool(spec.get("restartPolicy", "Never") != "Never")


def _is_made_anew(pod: Mapping[str, Any], spec: Mapping[str, Any], kind: str) -> bool:
    """By the container's exit code where the policy is ExitCode: what a signal has ended may be retried."""
    codes = [
        one["state"]["terminated"]["exitCode"]
        for one in pod["status"].get("containerStatuses") or []
        if one["name"] == KINDS[kind][1] and "terminated" in one["state"]
    ]
    policy = spec.get("restartPolicy", "Never")
    return policy in ("OnFailure", "Always") or (policy == "ExitCode" and all(code > 127 for code in codes))


def _environment(told: Mapping[str, Any], kind: str, role: str, index: int) -> list[dict[str, str]]:
    """What the ranks must not take for their own."""
    name, specs, spec = told["metadata"]["name"], _specs(told, kind), told["spec"]
    before = 0
    for other in list(specs)[: list(specs).index(role)]:
        before += specs[other]["replicas"]
    found = {
        "MASTER_ADDR": f"{name}-master-0",
        "MASTER_PORT": str(KINDS[kind][2]),
        "WORLD_SIZE": str(sum(one["replicas"] for one in specs.values())),
        "RANK": str(before + index),
    }
    policy = spec.get("elasticPolicy")
    if policy is not None:
        found = {} if "Master" not in specs else found
        found["PET_RDZV_ENDPOINT"] = f"{name}-worker-0:{KINDS[kind][2]}"
        found["PET_RDZV_BACKEND"] = policy.get("rdzvBackend", "c10d")
        found["PET_NNODES"] = f"{policy['minReplicas']}:{policy['maxReplicas']}"
    if "nprocPerNode" in spec:
        found["PET_NPROC_PER_NODE"] = spec["nprocPerNode"]
    return [{"name": key, "value": value} for key, value in found.items()]


def _create(api: Api, told: Mapping[str, Any], kind: str, role: str, index: int) -> None:
    """One pod with its service, unless they are there."""
    meta, spec = told["metadata"], _specs(told, kind)[role]
    owner = {"apiVersion": f"{_GROUP}/v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    owned = {"ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
    labels = {
        f"{_LABEL}/job-name": meta["name"],
        f"{_LABEL}/replica-type": role.lower(),
        f"{_LABEL}/replica-index": str(index),
    }
    template = copy.deepcopy(spec["template"])
    given = template.setdefault("metadata", {})
    name = f"{meta['name']}-{role.lower()}-{index}"
    about = {"name": name, **owned, "labels": {**given.get("labels", {}), **labels}}
    container = next(c for c in template["spec"]["containers"] if c["name"] == KINDS[kind][1])
    container["env"] = [*container.get("env", []), *_environment(told, kind, role, index)]
    policy = spec.get("restartPolicy", "Never")
    body = {**template["spec"], "restartPolicy": "Never" if policy == "ExitCode" else policy}
    core = f"/api/v1/namespaces/{meta['namespace']}"
    service = {"clusterIP": "None", "selector": labels, "ports": [{"port": KINDS[kind][2]}]}
    for path, made in (("pods", {**given, "spec": body}), ("services", {"spec": service})):
        with contextlib.suppress(Refusal):  # it is there
            api.post(f"{core}/{path}", {**made, "metadata": about})


def main(url: str, token: str, ca: str) -> None:
    api = Api(url, token, Path(ca))
    for kind, (plural, *_) in KINDS.items():
        follow(api, kind, f"/apis/{_GROUP}/v1/{plural}", functools.partial(_make, kind=kind))
    follow(api, "MPIJob", mpi_stand_in.PATH, mpi_stand_in.make)
    follow(api, "TrainJob", trainer_stand_in.PATH, trainer_stand_in.make)


if __name__ == "__main__":
    main(*sys.argv[1:])
