"""The CreateTrainingJob request of a run: the equivalent of an estimator's request of the SageMaker SDK.

Pure. The entry point is ours (backends/platform_entrypoint.py). It runs the agent of its host in place of the
user's script. The SDK's additions for its Debugger and Profiler are left out, because nothing here reads
their output. https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from .channels import channel
from .images import OWN_PYTHON, image_of, listed, newest_version, python_of
from .options import SageMakerOptions

__all__ = [
    "CHECKPOINTS",
    "Asked",
    "default_bucket",
    "image_for",
    "job_name",
    "job_names",
    "mailbox_of",
    "script_arguments",
    "training_request",
]

CHECKPOINTS = "/opt/ml/checkpoints"
_MODEL = "/opt/ml/model"
_LONGEST_BASE = 30


@dataclass(frozen=True)
class Asked:
    """The parts of a run's request that are not options."""

    name: str
    """The job's name. The client finds the job again by it."""
    world_size: int
    region: str
    program: str
    """The file in the code that the container's toolkit runs."""
    code: str
    """The S3 address of the code."""
    env: Mapping[str, str]
    metrics: Mapping[str, str] = field(default_factory=dict)
    entry: str | None = None
    """The name of the run's entry in SageMaker Experiments."""
    trial: str | None = None
    """The trial of that entry, if the options name none."""


def job_name(base: str, run: str, attempt: int) -> str:
    """Return the name of a job. Names are unique in an account and region: two submissions yield one job."""
    return f"{base}-{run}-{attempt}"


def job_names(asked: SageMakerOptions, run: str, attempt: int) -> list[str]:
    """Return the names that the job of an attempt may have, the wanted one first.

    Another job of the account may have the exact name of --job-name. Only the first attempt asks for it.
    """
    base = asked.base_job_name if asked.job_name is None else asked.job_name[:_LONGEST_BASE].rstrip("-")
    exact = [asked.job_name] if asked.job_name is not None and attempt == 0 else []
    return [*exact, job_name(base, run, attempt)]


def default_bucket(role: str, region: str) -> str:
    """Return the bucket that the SDK creates for the role's account."""
    return f"sagemaker-{region}-{role.split(':')[4]}"


def mailbox_of(asked: SageMakerOptions, region: str) -> str:
    """Return the URL of the S3 folder that contains the mailboxes of all runs."""
    assert asked.role is not None
    where = asked.code_location or f"s3://{default_bucket(asked.role, region)}/jupyter-dist"
    return where.rstrip("/")


def image_for(asked: SageMakerOptions, region: str) -> str:
    """Return the image for the options. Raises InputError."""
    if asked.image is not None:
        return asked.image
    framework = asked.used_framework
    smddp = asked.distribution == "smddp"
    version = asked.framework_version or newest_version(
        framework, asked.py_version, others=asked.other_python, smddp=smddp
    )
    if version is None:
        hint = "" if asked.other_python else ". Or add --other-python"
        raise InputError(
            f"jupyter-dist has no container of {framework}{' and smddp' * smddp} with the notebook's Python "
            f"({asked.py_version or OWN_PYTHON}) in its list. The list has {listed(framework, smddp=smddp)}. "
            "Run the notebook with one of those, or name another image with --image. It must "
            f"have this Python and SageMaker's training toolkit{hint}"
        )
    python = asked.py_version or python_of(framework, version) or OWN_PYTHON
    assert asked.instance_type is not None
    return image_of(framework, version, python, asked.instance_type, region)


def training_request(asked: SageMakerOptions, sent: Asked) -> dict[str, Any]:
    """Return the arguments of boto3's `create_training_job`."""
    role = asked.role or ""
    output = (asked.output_path or f"s3://{default_bucket(role, sent.region)}/").rstrip()
    algorithm: dict[str, Any] = {
        "TrainingImage": image_for(asked, sent.region),
        "TrainingInputMode": asked.input_mode,
    }
    if asked.image is None:
        algorithm["EnableSageMakerMetricsTimeSeries"] = True
    if sent.metrics:
        algorithm["MetricDefinitions"] = [{"Name": n, "Regex": r} for n, r in sent.metrics.items()]
    request: dict[str, Any] = {
        "TrainingJobName": sent.name,
        "AlgorithmSpecification": algorithm,
        "RoleArn": role,
        "OutputDataConfig": {"S3OutputPath": output, **_given(KmsKeyId=asked.kms_key)},
        "ResourceConfig": {
            "InstanceType": asked.instance_type,
            "InstanceCount": asked.instances(sent.world_size),
            "VolumeSizeInGB": asked.volume_size,
            **_given(
                VolumeKmsKeyId=asked.volume_kms_key, KeepAlivePeriodInSeconds=int(asked.keep_alive) or None
            ),
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": int(asked.max_run)},
        "HyperParameters": _hyperparameters(asked, sent, output),
        "Environment": dict(sent.env),
    }
    if asked.input:
        request["InputDataConfig"] = [channel(name, text) for name, text in asked.input.items()]
    if asked.subnets and asked.security_group_ids:
        request["VpcConfig"] = {
            "Subnets": asked.subnets.split(","),
            "SecurityGroupIds": asked.security_group_ids.split(","),
        }
    if asked.tags:
        request["Tags"] = [{"Key": key, "Value": value} for key, value in asked.tags.items()]
    if asked.spot:
        request["EnableManagedSpotTraining"] = True
        request["StoppingCondition"]["MaxWaitTimeInSeconds"] = int(asked.max_wait or asked.max_run)
    if asked.checkpoint_s3:
        request["CheckpointConfig"] = {
            "S3Uri": asked.checkpoint_s3,
            **_given(LocalPath=asked.checkpoint_local_path),
        }
    if asked.max_retry_attempts is not None:
        request["RetryStrategy"] = {"MaximumRetryAttempts": asked.max_retry_attempts}
    if asked.encrypt_inter_container_traffic:
        request["EnableInterContainerTrafficEncryption"] = True
    experiment = _given(
        ExperimentName=asked.experiment,
        TrialName=asked.trial or sent.trial,
        TrialComponentDisplayName=asked.trial_component,
        RunName=sent.entry,
    )
    if experiment:
        request["ExperimentConfig"] = experiment
    return request


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _hyperparameters(asked: SageMakerOptions, sent: Asked, output: str) -> dict[str, str]:
    """Return the hyperparameters. Their values are JSON, as the container's toolkit expects.

    https://github.com/aws/sagemaker-training-toolkit/blob/master/src/sagemaker_training/params.py
    """
    told: dict[str, Any] = {
        **{name: _value(text) for name, text in asked.hyperparameters.items()},
        **_distribution(asked, sent),
        "sagemaker_submit_directory": sent.code,
        "sagemaker_program": sent.program,
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": sent.name,
        "sagemaker_region": sent.region,
    }
    if asked.used_framework == "tensorflow" and asked.image is None:
        told["model_dir"] = _model_dir(asked, sent, output)
    return {name: json.dumps(value) for name, value in told.items()}


def _model_dir(asked: SageMakerOptions, sent: Asked, output: str) -> str:
    """Return the model folder for a TensorFlow script.

    The SDK takes a local folder under mpirun, except with smddp.
    """
    if asked.by_mpi and asked.distribution != "smddp":
        return _MODEL
    return f"{output.rstrip('/')}/{sent.name}/model"


def _distribution(asked: SageMakerOptions, sent: Asked) -> dict[str, Any]:
    kind = asked.distribution
    each = -(-sent.world_size // asked.instances(sent.world_size))
    mpi = {
        "sagemaker_mpi_enabled": True,
        "sagemaker_mpi_num_of_processes_per_host": each,
        "sagemaker_mpi_custom_mpi_options": asked.mpi_options or "",
    }
    if kind is None:
        return {}
    if kind in ("mpi", "horovod"):
        return mpi
    if kind == "torchrun":
        return {"sagemaker_torch_distributed_enabled": True, "sagemaker_instance_type": asked.instance_type}
    if kind == "smddp":
        return {
            "sagemaker_distributed_dataparallel_enabled": True,
            "sagemaker_instance_type": asked.instance_type,
            "sagemaker_distributed_dataparallel_custom_mpi_options": asked.mpi_options or "",
        }
    if kind == "smmp":
        return {
            **mpi,
            "mp_parameters": {name: _value(text) for name, text in asked.mp_parameters.items()},
            "sagemaker_distributed_dataparallel_enabled": False,
            "sagemaker_instance_type": asked.instance_type,
        }
    if kind == "mwms":
        return {"sagemaker_multi_worker_mirrored_strategy_enabled": True}
    return {"sagemaker_parameter_server_enabled": True}


def script_arguments(hyperparameters: Mapping[str, str]) -> list[str]:
    """Return the command line that SageMaker's toolkit builds for a script from hyperparameters.

    https://github.com/aws/sagemaker-training-toolkit/blob/master/src/sagemaker_training/mapping.py
    """
    given: list[str] = []
    for name, text in sorted(hyperparameters.items()):
        value = _value(text)
        if isinstance(value, dict):
            value = ",".join(f"{key}={value[key]}" for key in sorted(value))
        given += [f"--{name}" if len(name) > 1 else f"-{name}", "" if value is None else str(value)]
    return given


def _value(text: str) -> Any:
    """Parse the text as JSON, such as a number, true or a list. Returns the text itself if it is no JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if value != value else value  # NaN is no JSON
