"""Write down what the estimators of the SageMaker SDK send: tests/golden/sagemaker_estimators.json.

    python -m venv /tmp/sdk && /tmp/sdk/bin/pip install 'sagemaker<3'
    /tmp/sdk/bin/python tools/capture_estimators.py

The SDK is not among what the tests need: it pins what others need newer. Nothing is sent to AWS.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

_ROLE = "arn:aws:iam::123456789012:role/Train"
_TARGET = Path(__file__).parents[1] / "tests" / "golden" / "sagemaker_estimators.json"
_CODE = "s3://sagemaker-us-east-1-123456789012/jupyter-dist/code/HASH/sourcedir.tar.gz"

GPU = {"framework_version": "2.6.0", "py_version": "py312", "instance_type": "ml.g5.12xlarge"}
P4 = {**GPU, "framework_version": "2.0.1", "py_version": "py310", "instance_type": "ml.p4d.24xlarge"}
CPU = {**GPU, "instance_type": "ml.c5.xlarge"}
TF = {"framework_version": "2.19.0", "py_version": "py312", "instance_type": "ml.c5.xlarge"}


def cases() -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Name, estimator, its arguments, those of `fit`, and our options beside those of the same name."""
    two = {"instance_count": 2}
    yield "plain", "PyTorch", {**CPU, "instance_count": 1}, {}, {}
    yield (
        "torchrun",
        "PyTorch",
        {**GPU, **two, "distribution": {"torch_distributed": {"enabled": True}}},
        {},
        {"distribution": "torchrun"},
    )
    mpi = {"enabled": True, "processes_per_host": 4, "custom_mpi_options": "-verbose --NCCL_DEBUG=INFO"}
    ours = {"processes_per_host": 4, "mpi_options": "-verbose --NCCL_DEBUG=INFO"}
    yield "mpi", "PyTorch", {**GPU, **two, "distribution": {"mpi": mpi}}, {}, {"distribution": "mpi", **ours}
    yield (
        "horovod",
        "TensorFlow",
        {**TF, **two, "distribution": {"mpi": mpi}},
        {},
        {
            "distribution": "horovod",
            "framework": "tensorflow",
            **ours,
        },
    )
    ddp = {"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": "-x A=1"}}}
    yield (
        "smddp",
        "PyTorch",
        {**P4, **two, "distribution": ddp},
        {},
        {
            "distribution": "smddp",
            "mpi_options": "-x A=1",
        },
    )
    yield (
        "smddp of TensorFlow",
        "TensorFlow",
        {**P4, **two, "framework_version": "2.11", "py_version": "py39", "distribution": ddp},
        {},
        {
            "distribution": "smddp",
            "framework": "tensorflow",
            "mpi_options": "-x A=1",
        },
    )
    parameters = {"partitions": 2, "microbatches": 4, "ddp": True}
    smp = {"smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}, "mpi": mpi}
    yield (
        "smmp",
        "PyTorch",
        {**P4, **two, "distribution": smp},
        {},
        {
            "distribution": "smmp",
            "mp_parameters": {name: json.dumps(value) for name, value in parameters.items()},
            **ours,
        },
    )
    mwms = {"multi_worker_mirrored_strategy": {"enabled": True}}
    yield (
        "mwms",
        "TensorFlow",
        {**TF, **two, "distribution": mwms},
        {},
        {
            "distribution": "mwms",
            "framework": "tensorflow",
        },
    )
    servers = {"parameter_server": {"enabled": True}}
    yield (
        "parameter_server",
        "TensorFlow",
        {**TF, **two, "distribution": servers},
        {},
        {
            "distribution": "parameter_server",
            "framework": "tensorflow",
        },
    )
    from sagemaker.inputs import FileSystemInput, TrainingInput

    data, bucket = "s3://data/train", "s3://data"
    yield (
        "inputs",
        "PyTorch",
        {**CPU, **two, "input_mode": "FastFile"},
        {
            "inputs": {
                "training": TrainingInput(data, distribution="ShardedByS3Key", content_type="text/csv"),
                "pipe": TrainingInput(data, input_mode="Pipe"),
                "list": TrainingInput(f"{bucket}/m", s3_data_type="ManifestFile", compression="Gzip"),
                "records": TrainingInput(data, record_wrapping="RecordIO"),
            }
        },
        {
            "input": {
                "training": f"{data},distribution=ShardedByS3Key,content_type=text/csv",
                "pipe": f"{data},mode=Pipe",
                "list": f"{bucket}/m,s3_data_type=ManifestFile,compression=Gzip",
                "records": f"{data},record_wrapping=RecordIO",
            }
        },
    )
    vpc = {"subnets": ["subnet-1", "subnet-2"], "security_group_ids": ["sg-1"]}
    yield (
        "file systems",
        "PyTorch",
        {**CPU, **two, **vpc},
        {
            "inputs": {
                "efs": FileSystemInput("fs-0123456789abcdef0", "EFS", "/data", "rw"),
                "lustre": FileSystemInput("fs-0123456789abcdef1", "FSxLustre", "/mnt/data", "ro"),
            }
        },
        {
            "input": {
                "efs": "efs://fs-0123456789abcdef0/data,rw",
                "lustre": "fsx://fs-0123456789abcdef1/mnt/data,ro",
            },
            "subnets": "subnet-1,subnet-2",
            "security_group_ids": "sg-1",
        },
    )
    spot = {"use_spot_instances": True, "max_wait": 7200, "max_run": 3600}
    yield (
        "spot",
        "PyTorch",
        {**CPU, **two, **spot, "checkpoint_s3_uri": "s3://data/checkpoints"},
        {},
        {
            "spot": True,
            "max_wait": 7200,
            "max_run": 3600,
            "checkpoint_s3": "s3://data/checkpoints",
        },
    )
    yield "warm pool", "PyTorch", {**CPU, **two, "keep_alive_period_in_seconds": 600}, {}, {"keep_alive": 600}
    yield (
        "disks and keys",
        "PyTorch",
        {
            **CPU,
            **two,
            "volume_size": 200,
            "output_path": "s3://data/out",
            "output_kms_key": "alias/out",
            "volume_kms_key": "alias/disk",
            "encrypt_inter_container_traffic": True,
            "max_retry_attempts": 3,
            "tags": [{"Key": "team", "Value": "vision"}],
        },
        {},
        {
            "volume_size": 200,
            "output_path": "s3://data/out",
            "kms_key": "alias/out",
            "volume_kms_key": "alias/disk",
            "encrypt_inter_container_traffic": True,
            "max_retry_attempts": 3,
            "tags": {"team": "vision"},
        },
    )
    yield (
        "hyperparameters",
        "PyTorch",
        {
            **CPU,
            **two,
            "hyperparameters": {"lr": 0.1, "epochs": 3, "name": "resnet", "flag": True, "sizes": [1, 2]},
            "metric_definitions": [{"Name": "loss", "Regex": "loss: ([0-9.]+)"}],
        },
        {},
        {
            "hyperparameters": {
                "lr": "0.1",
                "epochs": "3",
                "name": "resnet",
                "flag": "true",
                "sizes": "[1, 2]",
            },
            "metric": {"loss": "loss: ([0-9.]+)"},
        },
    )
    yield (
        "experiment",
        "PyTorch",
        {**CPU, **two},
        {"experiment_config": {"ExperimentName": "e", "TrialName": "t", "TrialComponentDisplayName": "r"}},
        {"experiment": "e", "trial": "t", "trial_component": "r"},
    )
    yield (
        "own image",
        "PyTorch",
        {
            "instance_type": "ml.c5.xlarge",
            **two,
            "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1",
        },
        {},
        {"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"},
    )


def capture(estimator: str, given: dict[str, Any], fit: dict[str, Any]) -> dict[str, Any]:
    """The request of one estimator."""
    import boto3
    import sagemaker
    from sagemaker.fw_utils import UploadedCode
    from sagemaker.pytorch import PyTorch
    from sagemaker.tensorflow import TensorFlow

    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    session = sagemaker.Session(
        boto3.Session(**keys), mock.Mock(), default_bucket="sagemaker-us-east-1-123456789012"
    )
    sent: list[dict[str, Any]] = []
    session.sagemaker_client.create_training_job = lambda **request: sent.append(request)
    session._default_bucket = "sagemaker-us-east-1-123456789012"
    made = {"PyTorch": PyTorch, "TensorFlow": TensorFlow}[estimator](
        entry_point="train.py", role=_ROLE, sagemaker_session=session, **given
    )
    with mock.patch.object(
        type(made), "_stage_user_code_in_s3", return_value=UploadedCode(_CODE, "train.py")
    ):
        made.fit(wait=False, logs=False, job_name="NAME", **fit)
    return sent[0]


def main() -> None:
    """Write the file."""
    logging.disable()
    found: dict[str, Any] = {}
    for name, estimator, given, fit, ours in cases():
        own = {key: given[key] for key in ("framework_version", "py_version") if key in given}
        options = {"instance_type": given["instance_type"], "instance_count": given["instance_count"]}
        if "input_mode" in given:
            options["input_mode"] = given["input_mode"]
        found[name] = {
            "options": {**options, **own, **ours},
            "request": capture(estimator, given, fit),
        }
    about = {"sdk": f"sagemaker {metadata.version('sagemaker')}", "role": _ROLE, "region": "us-east-1"}
    _TARGET.write_text(json.dumps({**about, "cases": found}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
