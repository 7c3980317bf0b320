"""A stand-in for Kubeflow's Trainer and for JobSet: of a TrainJob it makes the Indexed Job of its nodes.

The real ones are Go programs that are not to be had here. This was written after
https://github.com/kubeflow/trainer/tree/master/pkg/apis/trainer/v1alpha1 and the runtime torch-distributed of
its manifests, the only one that this knows; the JobSet between the two is left out, but for its labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.rigs.kubernetes.api import Api, Refusal
from tests.rigs.kubernetes.operating import decide_by, owned_by, set_conditions

__all__ = ["PATH", "make"]

PATH = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
_RUNTIME = "torch-distributed"
_IMAGE = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"


def make(api: Api, told: Mapping[str, Any]) -> None:
    """The Job of one TrainJob, or word that it has failed."""
    meta, spec = told["metadata"], told["spec"]
    if spec["runtimeRef"]["name"] != _RUNTIME:
        said = f"runtime {spec['runtimeRef']['name']} is not supported"
        why = {"type": "Failed", "reason": "TrainingRuntimeNotSupported", "message": said}
        return set_conditions(api, PATH, told, why)
    trainer = spec.get("trainer", {})
    nodes = trainer.get("numNodes", 1)
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    # What the torch plugin tells torchrun.
    env = [
        *trainer.get("env", []),
        {"name": "PET_NNODES", "value": str(nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": str(trainer.get("numProcPerNode", "auto"))},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "PET_MASTER_ADDR", "value": f"{meta['name']}-node-0-0.{meta['name']}"},
        {"name": "PET_MASTER_PORT", "value": "29400"},
    ]
    container = {
        "name": "node",
        "image": trainer.get("image", _IMAGE),
        "env": env,
        "resources": trainer.get("resourcesPerNode", {}),
        **{field: trainer[field] for field in ("command", "args") if field in trainer},
    }
    group = "jobset.sigs.k8s.io"
    labels = {f"{group}/jobset-name": meta["name"], f"{group}/replicatedjob-name": "node"}
    pod = {"containers": [container], "restartPolicy": "Never", "subdomain": meta["name"]}
    job = {
        "metadata": {"name": f"{meta['name']}-node-0", "labels": labels, **owned_by(told)},
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    jobs = f"/apis/batch/v1/namespaces/{meta['namespace']}/jobs"
    try:
        api.post(jobs, job)
    except Refusal as refusal:
        if refusal.status != 409:  # it was made before
            raise
    kinds = {"Complete": "Complete", "Failed": "Failed"}
    decide_by(api, f"{jobs}/{job['metadata']['name']}", PATH, told, kinds)
