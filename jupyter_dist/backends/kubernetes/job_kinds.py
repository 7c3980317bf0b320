"""What may be made in the cluster for a run: a Job, or one of Kubeflow's, whose operator makes the pods.

https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/ has Kubeflow's. Whatever it is, the
pods keep the place for our agents, which start the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["KINDS", "Kind", "index_of"]

_INDEX = "batch.kubernetes.io/job-completion-index"
_REPLICA_TYPE, _REPLICA_INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_ROLE = "training.kubeflow.org/job-role"
"""The MPI operator's word for the type; its launcher has no index."""


@dataclass(frozen=True)
class Kind:
    """One of them. `group` is the API's, with its version."""

    title: str
    group: str
    resource: str
    container: str | None = None
    """What the operator wants the ranks' container to be called."""
    needs: str = "Kubeflow's training operator"
    by_mpi: bool = False
    """Whether mpirun holds places for the ranks, from a pod of its own."""
    by_runtime: bool = False
    """Whether the pods are those of a runtime that an administrator has described, of which a job may change
    little. What it may change besides is called otherwise in each version of Kubeflow's Trainer."""

    @property
    def path(self) -> str:
        return f"/apis/{self.group}"

    @property
    def is_kubeflows(self) -> bool:
        return "kubeflow.org/" in self.group


KINDS: Mapping[str, Kind] = {
    "job": Kind("Job", "batch/v1", "jobs"),
    "pytorchjob": Kind("PyTorchJob", "kubeflow.org/v1", "pytorchjobs", "pytorch"),
    "tfjob": Kind("TFJob", "kubeflow.org/v1", "tfjobs", "tensorflow"),
    "mpijob": Kind("MPIJob", "kubeflow.org/v2beta1", "mpijobs", needs="Kubeflow's MPI operator", by_mpi=True),
    "trainjob": Kind(
        "TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs", needs="Kubeflow's Trainer", by_runtime=True
    ),
}


def index_of(pod: Mapping[str, Any], replicas: Mapping[str, int]) -> int:
    """Which of a run's pods it is. `replicas`: how many there are of each of Kubeflow's types, in the ranks'
    order; none for a Job."""
    meta = pod["metadata"]
    if not replicas:
        return int(meta["annotations"][_INDEX])
    labels = meta["labels"]
    kind, number = labels.get(_REPLICA_TYPE) or labels[_ROLE], int(labels.get(_REPLICA_INDEX, 0))
    before = 0
    for name, count in replicas.items():
        if name.lower() == kind:
            return before + number
        before += count
    raise LookupError(f"no replicas of the type {kind!r}")
