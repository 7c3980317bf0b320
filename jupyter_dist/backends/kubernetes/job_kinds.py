"""The kinds of job that a run can create: a Job, or a Kubeflow job, whose operator creates the pods.

Kubeflow's kinds: https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/. With every kind the
pods reserve resources for our agents, which start the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["KINDS", "Kind", "index_of"]

_INDEX = "batch.kubernetes.io/job-completion-index"
_REPLICA_TYPE, _REPLICA_INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_ROLE = "training.kubeflow.org/job-role"
"""The MPI operator's label for the type. The launcher's pod has no index."""


@dataclass(frozen=True)
class Kind:
    """One kind. `group` is the API group, with its version."""

    title: str
    group: str
    resource: str
    container: str | None = None
    """The name that the operator requires for the ranks' container."""
    needs: str = "Kubeflow's training operator"
    by_mpi: bool = False
    """Whether mpirun, in a pod of its own, starts a process for each rank's place."""
    by_runtime: bool = False
    """Whether an administrator's runtime defines the pods.

    A job may change little of such a runtime. The names of further changes differ between versions of
    Kubeflow's Trainer.
    """

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
    """Return the index of a pod in its run.

    `replicas`: the number of pods of each of Kubeflow's types, in the ranks' order. It is empty for a Job.
    """
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
