"""A stand-in for Kubeflow's training operator: it makes the pods and services of PyTorchJobs and TFJobs.

python kubeflow_stand_in.py URL TOKEN CA

The real one is a Go program that is not to be had here. What this one does was written after its documents
and its labels:
https://github.com/kubeflow/training-operator/blob/release-1.9/pkg/apis/kubeflow.org/v1/common_types.go.
mpi_stand_in.py and trainer_stand_in.py stand in for Kubeflow's other operators.
A job has succeeded with its first replica, and failed with any. It knows nothing of elastic jobs, suspending,
restarts or clean-up beyond what owner references bring about.
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

from kube_plane import mpi_stand_in, trainer_stand_in
from kube_plane.api import Api, Refusal
from kube_plane.operating import follow, set_conditions

__all__ = ["KINDS", "main"]

KINDS = {"PyTorchJob": ("pytorchjobs", "pytorch", 23456), "TFJob": ("tfjobs", "tensorflow", 2222)}
_GROUP = "kubeflow.org"
_LABEL = "training.kubeflow.org"


def _make(api: Api, told: Mapping[str, Any], kind: str) -> None:
    """The pods and services of one job."""
    meta, specs = told["metadata"], told["spec"][f"{KINDS[kind][1]}ReplicaSpecs".replace("tensorflow", "tf")]
    owner = {"apiVersion": f"{_GROUP}/v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    total = sum(spec["replicas"] for spec in specs.values())
    before, names = 0, []
    for role, spec in specs.items():
        for index in range(spec["replicas"]):
            name = f"{meta['name']}-{role.lower()}-{index}"
            names.append(name)
            labels = {
                f"{_LABEL}/job-name": meta["name"],
                f"{_LABEL}/replica-type": role.lower(),
                f"{_LABEL}/replica-index": str(index),
            }
            template = copy.deepcopy(spec["template"])
            given = template.setdefault("metadata", {})
            owned = {"ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
            about = {"name": name, **owned, "labels": {**given.get("labels", {}), **labels}}
            container = next(c for c in template["spec"]["containers"] if c["name"] == KINDS[kind][1])
            # What the ranks must not take for their own.
            container["env"] = [
                *container.get("env", []),
                {"name": "MASTER_ADDR", "value": f"{meta['name']}-master-0"},
                {"name": "MASTER_PORT", "value": str(KINDS[kind][2])},
                {"name": "WORLD_SIZE", "value": str(total)},
                {"name": "RANK", "value": str(before + index)},
            ]
            body = {**template["spec"], "restartPolicy": spec.get("restartPolicy", "Never")}
            core = f"/api/v1/namespaces/{meta['namespace']}"
            service = {"clusterIP": "None", "selector": labels, "ports": [{"port": KINDS[kind][2]}]}
            for path, made in (("pods", {**given, "spec": body}), ("services", {"spec": service})):
                with contextlib.suppress(Refusal):  # it was made before
                    api.post(f"{core}/{path}", {**made, "metadata": about})
        before += spec["replicas"]
    path = f"/apis/{_GROUP}/v1/{KINDS[kind][0]}"
    set_conditions(api, path, told, {"type": "Created", "reason": f"{kind}Created"})
    phases = _phases(api, told, names)
    failed = next((name for name, phase in phases.items() if phase == "Failed"), None)
    if failed is not None:
        said = f"{kind} {meta['name']} is failed because 1 replica(s) failed: {failed}"
        set_conditions(api, path, told, {"type": "Failed", "reason": f"{kind}Failed", "message": said})
    elif phases:
        said = f"{kind} {meta['name']} is successfully completed."
        set_conditions(api, path, told, {"type": "Succeeded", "reason": f"{kind}Succeeded", "message": said})


def _phases(api: Api, told: Mapping[str, Any], names: list[str]) -> dict[str, str]:
    """Those of the pods once they decide on the job; none where they are gone before."""
    core = f"/api/v1/namespaces/{told['metadata']['namespace']}/pods"
    while True:
        try:
            found = {name: str(api.get(f"{core}/{name}")["status"]["phase"]) for name in names}
        except Refusal as refusal:
            if refusal.status == 404:
                return {}
            raise
        if "Failed" in found.values() or found[names[0]] == "Succeeded":
            return found
        time.sleep(0.3)


def main(url: str, token: str, ca: str) -> None:
    api = Api(url, token, Path(ca))
    for kind, (plural, *_) in KINDS.items():
        follow(api, kind, f"/apis/{_GROUP}/v1/{plural}", functools.partial(_make, kind=kind))
    follow(api, "MPIJob", mpi_stand_in.PATH, mpi_stand_in.make)
    follow(api, "TrainJob", trainer_stand_in.PATH, trainer_stand_in.make)


if __name__ == "__main__":
    main(*sys.argv[1:])
