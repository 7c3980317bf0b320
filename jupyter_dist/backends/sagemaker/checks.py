"""Checks of a training job before any request, and before anything costs money."""

from __future__ import annotations

import importlib.util
import shlex

from ...errors import InputError, MissingEngine
from ...hosts.openssh import OLDEST
from ..ranks.tensorflow_roles import roles
from .account import region_of
from .channels import needs_vpc
from .images import OWN_PYTHON, full_version, listed, python_of, runs_ranks, smddp_instances, smddp_versions
from .instance_types import cost_line, gpus_of
from .options import SageMakerOptions
from .request import image_for

__all__ = ["check_training", "region_for"]


def region_for(asked: SageMakerOptions) -> str:
    """Return the region of the options, the profile or the environment. Raises InputError."""
    found = region_of(asked.region, asked.profile)
    if found is None:
        raise InputError("the backend 'sagemaker' needs a region: --region us-east-1, or AWS_REGION")
    return found


def check_training(world_size: int, asked: SageMakerOptions) -> list[str]:
    """Return warnings. Raises InputError."""
    if importlib.util.find_spec("boto3") is None:
        raise MissingEngine("the backend 'sagemaker' needs boto3: pip install \"jupyter-dist[sagemaker]\"")
    if asked.role is None:
        raise InputError("the backend 'sagemaker' needs --role, the ARN of the job's role")
    if asked.instance_type is None:
        raise InputError("the backend 'sagemaker' needs --instance-type, such as ml.g5.xlarge")
    region = region_for(asked)
    _check_instance_type(asked.instance_type)
    if asked.distribution == "smddp":
        _check_smddp(asked)
    _check_python(asked)
    image_for(asked, region)
    warnings = asked.check_instances(world_size)
    roles(world_size, ps=asked.servers)
    if asked.distribution in ("smddp", "smmp") and gpus_of(asked.instance_type) == 0:
        raise InputError(
            f"--distribution {asked.distribution} needs instances with GPUs, such as ml.p4d.24xlarge"
        )
    _check_pairs(asked)
    _check_hyperparameters(asked)
    count, keep_alive_s = asked.instances(world_size), int(asked.keep_alive)
    warnings = [
        cost_line(asked.instance_type, count, region, spot=asked.spot, keep_alive_s=keep_alive_s),
        *warnings,
    ]
    if asked.distribution in ("smddp", "smmp"):
        warnings.append(
            f"--distribution {asked.distribution} needs an image with AWS's library. jupyter-dist "
            "does not test it"
        )
    return warnings


def _check_instance_type(name: str) -> None:
    import botocore.session

    known = botocore.session.Session().get_service_model("sagemaker").shape_for("TrainingInstanceType").enum
    if name not in known:
        near = [each for each in known if each.split(".")[:2] == name.split(".")[:2]]
        cure = f"; this family has {', '.join(near)}" if near else ", such as ml.g5.xlarge"
        raise InputError(f"--instance-type needs a training instance type, got {name!r:.80}{cure}")


def _check_smddp(asked: SageMakerOptions) -> None:
    """Raise InputError if AWS's data parallel library does not run with this container and instance type."""
    if asked.instance_type not in smddp_instances() and gpus_of(asked.instance_type or "") != 0:
        raise InputError(
            f"--distribution smddp does not run on {asked.instance_type}. Use --instance-type "
            f"{' or '.join(smddp_instances())}. Or use --distribution torchrun or mpi on any instance"
        )
    framework, version = asked.used_framework, asked.framework_version
    if asked.image is not None or (version is None and smddp_versions(framework)):
        return
    if version is None or full_version(framework, version) not in smddp_versions(framework):
        others = f"--framework-version with {listed(framework, smddp=True)}"
        if not smddp_versions(framework):
            others = f"--framework pytorch with {listed('pytorch', smddp=True)}"
        called = framework if version is None else f"{framework} {version}"
        raise InputError(
            f"no container of {called} with Python {OLDEST} or newer has AWS's smddp library. Use {others}. "
            "Or name an image with --image"
        )


def _check_python(asked: SageMakerOptions) -> None:
    """Raise InputError if ranks cannot run with the image's Python."""
    if asked.image is not None:
        return
    version = asked.framework_version
    python = asked.py_version or (python_of(asked.used_framework, version) if version else None)
    if python is None or python == OWN_PYTHON:
        return
    if not runs_ranks(python):
        raise InputError(
            f"the container of {asked.used_framework} {version or ''} has {python}, and ranks need Python "
            f"{OLDEST} or newer. Name a newer container with --framework-version"
        )
    if not asked.other_python:
        # Only ranks have the oldest Python, so no notebook can run with it.
        with_it = "" if python == f"py{OLDEST.replace('.', '')}" else f", or run the notebook with {python}"
        raise InputError(
            f"the container of {asked.used_framework} {version or ''} has {python}, but the "
            f"notebook has Python {OWN_PYTHON}. Remove --framework-version{with_it}. Or add --other-python"
        )


def _check_pairs(asked: SageMakerOptions) -> None:
    """Raise InputError for options that need another option for their meaning."""
    system = needs_vpc(asked.input)
    if system is not None and not asked.subnets:
        raise InputError(
            f"the input {system!r} is on a file system, which instances can use only inside its "
            "VPC. Add --subnets and --security-group-ids"
        )
    if asked.max_wait is not None and asked.max_wait < asked.max_run:
        raise InputError(
            f"--max-wait ({asked.max_wait:g} s) includes the run, so it must be at least "
            f"--max-run ({asked.max_run:g} s)"
        )
    if asked.mpi_options and not asked.by_mpi:
        raise InputError(
            f"--mpi-options is for mpirun, got {shlex.quote(asked.mpi_options)[:80]}. Add --distribution mpi"
        )
    if asked.mp_parameters and asked.distribution != "smmp":
        raise InputError("--mp-parameters works only with --distribution smmp. Add it")


def _check_hyperparameters(asked: SageMakerOptions) -> None:
    for name in asked.hyperparameters:
        if name.startswith("sagemaker_") or name in ("mp_parameters", "model_dir"):
            raise InputError(f"--hyperparameters {name}=… uses a name of SageMaker. Choose another name")
