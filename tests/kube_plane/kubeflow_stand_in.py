"""A stand-in for Kubeflow's training operator: it makes the pods and services of PyTorchJobs and TFJobs.

python kubeflow_stand_in.py URL TOKEN CA

The real one is a Go program that is not to be had here. What this one does was written after its documents
and its labels:
https://github.com/kubeflow/training-operator/blob/release-1.9/pkg/apis/kubeflow.org/v1/common_types.go.
mpi_stand_in.py and trainer_stand_in.py stand in for Kubeflow's other operators.
It knows nothing of elastic jobs, suspending, restarts or clean-up beyond what owner references bring about.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kube_plane import mpi_stand_in, trainer_stand_in
from kube_plane.api import Api, Refusal
from kube_plane.operating import follow

__all__ = ["KINDS", "main"]

KINDS = {"PyTorchJob": ("pytorchjobs", "pytorch", 23456), "TFJob": ("tfjobs", "tensorflow", 2222)}
_GROUP = "kubeflow.org"
_LABEL = "training.kubeflow.org"


def _make(api: Api, told: Mapping[str, Any], kind: str) -> None:
    """The pods and services of one job."""
    meta, specs = told["metadata"], told["spec"][f"{KINDS[kind][1]}ReplicaSpecs".replace("tensorflow", "tf")]
    owner = {"apiVersion": f"{_GROUP}/v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    total = sum(spec["replicas"] for spec in specs.values())
    before = 0
    for role, spec in specs.items():
        for index in range(spec["replicas"]):
            name = f"{meta['name']}-{role.lower()}-{index}"
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
    condition = {"type": "Created", "status": "True", "reason": f"{kind}Created"}
    path = f"/apis/{_GROUP}/v1/namespaces/{meta['namespace']}/{KINDS[kind][0]}/{meta['name']}/status"
    api.ask("PATCH", path, {"status": {"conditions": [condition]}}, kind="application/merge-patch+json")


def main(url: str, token: str, ca: str) -> None:
    api = Api(url, token, Path(ca))
    for kind, (plural, *_) in KINDS.items():
        follow(api, kind, f"/apis/{_GROUP}/v1/{plural}", functools.partial(_make, kind=kind))
    follow(api, "MPIJob", mpi_stand_in.PATH, mpi_stand_in.make)
    follow(api, "TrainJob", trainer_stand_in.PATH, trainer_stand_in.make)


if __name__ == "__main__":
    main(*sys.argv[1:])
