"""Write down what Kubeflow's own SDKs send for a job: tests/golden/kubeflow_requests.json.

    python -m venv /tmp/sdk && /tmp/sdk/bin/pip install kubeflow kubeflow-training
    /tmp/sdk/bin/python tools/capture_kubeflow.py

kubeflow-training sends PyTorchJobs and TFJobs, kubeflow sends TrainJobs. No SDK sends MPIJobs of v2beta1. The
SDKs are not among what the tests need. Nothing is sent to a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

_TARGET = Path(__file__).parents[1] / "tests" / "golden" / "kubeflow_requests.json"
_IMAGE = "registry/train:1"


def trainings() -> Iterator[tuple[str, dict[str, Any], int, dict[str, Any]]]:
    """Name, arguments of `TrainingClient.create_job`, number of ranks, and our options for the same."""
    from kubernetes.client import (
        V1PersistentVolumeClaimVolumeSource,
        V1Volume,
        V1VolumeMount,
    )

    two = {"num_workers": 2, "base_image": _IMAGE}
    asked = {"cpu": "2", "memory": "8Gi"}
    ours = {"image": _IMAGE, "cpus_per_worker": 2, "memory": "8Gi"}
    pytorch, tensorflow = {"kind": "pytorchjob"}, {"kind": "tfjob"}
    of_torch, of_tensorflow = {"job_kind": "PyTorchJob"}, {"job_kind": "TFJob"}
    yield (
        "pytorch",
        {**two, **of_torch, "resources_per_worker": asked, "num_procs_per_worker": 1},
        2,
        {**ours, **pytorch},
    )
    yield (
        "pytorch, one pod",
        {**two, **of_torch, "num_workers": 1, "resources_per_worker": asked, "num_procs_per_worker": 1},
        1,
        {**ours, **pytorch},
    )
    yield (
        "pytorch, GPUs",
        {
            **two,
            **of_torch,
            "num_workers": 3,
            "num_procs_per_worker": 4,
            "resources_per_worker": {"cpu": "8", "memory": str(32 * 2**30), "gpu": "4"},
        },
        12,
        {**ours, **pytorch, "processes_per_host": 4, "gpus_per_worker": 1},
    )
    yield (
        "pytorch, a queue and a volume",
        {
            **two,
            **of_torch,
            "resources_per_worker": asked,
            "num_procs_per_worker": 1,
            "queue_name": "team",
            "volumes": [
                V1Volume(
                    name="pvc-data",
                    persistent_volume_claim=V1PersistentVolumeClaimVolumeSource(claim_name="data"),
                )
            ],
            "volume_mounts": [V1VolumeMount(name="pvc-data", mount_path="/data")],
        },
        2,
        {**ours, **pytorch, "queue": "team", "pvc": ["data:/data"]},
    )
    yield (
        "tensorflow",
        {**two, **of_tensorflow, "resources_per_worker": asked},
        2,
        {**ours, **tensorflow},
    )
    yield (
        "tensorflow, parameter servers",
        {
            **two,
            **of_tensorflow,
            "resources_per_worker": asked,
            "num_chief_replicas": 1,
            "num_ps_replicas": 1,
        },
        4,
        {**ours, **tensorflow, "chief": True, "ps": 1},
    )


def elastic() -> Any:
    """A PyTorchJob with 1 to 3 workers, of the SDK's models, as its users write one."""
    from kubeflow.training import models
    from kubernetes.client import V1ObjectMeta

    policy = models.KubeflowOrgV1RunPolicy(
        scheduling_policy=models.KubeflowOrgV1SchedulingPolicy(min_available=2)
    )
    worker = models.KubeflowOrgV1ReplicaSpec(
        replicas=3, restart_policy="ExitCode", template=_template("pytorch")
    )
    return models.KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=V1ObjectMeta(name="name"),
        spec=models.KubeflowOrgV1PyTorchJobSpec(
            run_policy=policy,
            nproc_per_node="1",
            elastic_policy=models.KubeflowOrgV1ElasticPolicy(min_replicas=1, max_replicas=3),
            pytorch_replica_specs={"Worker": worker},
        ),
    )


def restarting() -> Any:
    """A TFJob whose operator restarts pods."""
    from kubeflow.training import models
    from kubernetes.client import V1ObjectMeta

    worker = models.KubeflowOrgV1ReplicaSpec(
        replicas=2, restart_policy="OnFailure", template=_template("tensorflow")
    )
    return models.KubeflowOrgV1TFJob(
        api_version="kubeflow.org/v1",
        kind="TFJob",
        metadata=V1ObjectMeta(name="name"),
        spec=models.KubeflowOrgV1TFJobSpec(
            run_policy=models.KubeflowOrgV1RunPolicy(), tf_replica_specs={"Worker": worker}
        ),
    )


def _template(container: str) -> Any:
    from kubeflow.training.utils import utils

    made = utils.get_container_spec(
        name=container, base_image=_IMAGE, resources={"cpu": "2", "memory": "8Gi"}
    )
    return utils.get_pod_template_spec(containers=[made])


def trainjobs() -> Iterator[tuple[str, dict[str, Any], int, dict[str, Any]]]:
    """Name, arguments of `CustomTrainerContainer`, number of ranks, and our options for the same."""
    two = {"image": _IMAGE, "num_nodes": 2}
    kind = {"kind": "trainjob", "image": _IMAGE, "cpus_per_worker": 2, "memory": "8Gi"}
    yield (
        "trainjob",
        {**two, "resources_per_node": {"cpu": "2", "memory": "8Gi"}},
        2,
        kind,
    )
    yield (
        "trainjob, GPUs",
        {**two, "resources_per_node": {"cpu": "8", "memory": str(32 * 2**30), "gpu": "4"}},
        8,
        {**kind, "processes_per_host": 4, "gpus_per_worker": 1},
    )


def training_requests(sent: list[dict[str, Any]]) -> dict[str, Any]:
    """What kubeflow-training sends for each case."""
    from kubeflow.training import TrainingClient
    from kubernetes import client

    found = {}
    made = TrainingClient(client_configuration=client.Configuration(), namespace="ns")
    for name, arguments, ranks, ours in trainings():
        with mock.patch.object(TrainingClient, "_check_queue_exists"):
            made.create_job(name="name", **arguments)
        found[name] = {"ranks": ranks, "options": ours, "request": sent.pop()}
    ours = {"image": _IMAGE, "cpus_per_worker": 2, "memory": "8Gi"}
    for name, job, more in (
        ("pytorch, elastic", elastic(), {"kind": "pytorchjob", "min_np": 1, "max_np": 3}),
        ("tensorflow, restarting", restarting(), {"kind": "tfjob", "restart_policy": "OnFailure"}),
    ):
        made.create_job(job=job)
        found[name] = {"ranks": 2, "options": {**ours, **more}, "request": sent.pop()}
    return found


def trainer_requests(sent: list[dict[str, Any]]) -> dict[str, Any]:
    """What kubeflow sends for each case."""
    from kubeflow.trainer import CustomTrainerContainer, KubernetesBackendConfig, TrainerClient
    from kubeflow.trainer.options import Name
    from kubeflow.trainer.types import types
    from kubernetes import client

    found = {}
    configuration = KubernetesBackendConfig(namespace="ns", client_configuration=client.Configuration())
    made = TrainerClient(configuration)
    runtime = types.Runtime(
        name="torch-distributed",
        kind=types.RuntimeKind.CLUSTER_TRAINING_RUNTIME,
        trainer=types.RuntimeTrainer(
            trainer_type=types.TrainerType.CUSTOM_TRAINER, framework="torch", image="pytorch/pytorch"
        ),
    )
    for name, arguments, ranks, ours in trainjobs():
        made.train(runtime=runtime, trainer=CustomTrainerContainer(**arguments), options=[Name(name="name")])
        found[name] = {"ranks": ranks, "options": ours, "request": sent.pop()}
    return found


def main() -> None:
    """Ask the SDKs for each case, and write what they have sent."""
    from kubernetes import client

    sent: list[dict[str, Any]] = []

    def create(self: Any, group: str, version: str, namespace: str, plural: str, body: Any, **_: Any) -> None:
        told = client.ApiClient().sanitize_for_serialization(body)
        sent.append({"path": f"/apis/{group}/{version}/namespaces/{namespace}/{plural}", "body": told})

    with (
        mock.patch.object(client.CustomObjectsApi, "create_namespaced_custom_object", create),
        mock.patch.object(client.CoreV1Api, "read_namespaced_config_map", side_effect=OSError),
    ):
        cases = {**training_requests(sent), **trainer_requests(sent)}
    told = {name: metadata.version(name) for name in ("kubeflow", "kubeflow-training")}
    _TARGET.write_text(json.dumps({**told, "cases": cases}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
