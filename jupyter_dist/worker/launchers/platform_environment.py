"""The position of this process in a platform's job, read from environment variables, without other effects.

A platform that starts the same container many times distinguishes the containers only by their environment.
Variables of several platforms can be set, for example in an Indexed Job whose pods run srun. The innermost
platform then has priority, because it started this very process.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["JobPosition", "standing"]


@dataclass(frozen=True)
class JobPosition:
    """A position in a job. None: the platform does not set the value."""

    platform: str | None = None
    """The platform that set the variables; None without a platform."""
    node: int | None = None
    """The index of the host."""
    nodes: int | None = None
    rank: int | None = None
    """The rank of the process, if the platform starts one process for each rank."""
    world_size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    gpus: int | None = None
    """The number of GPUs of this process."""
    drop: tuple[str, ...] = ()
    """Variables that the platform sets for its own workers, and that would slow down a rank."""


def standing(environ: Mapping[str, str]) -> JobPosition:
    """Read the job position from the environment.

    Values that the platform would never set count as absent.
    """
    for name, (marks, read) in _TABLE.items():
        if all(mark in environ for mark in marks):
            try:
                found = read(environ)
            except (ValueError, KeyError, IndexError, TypeError, AttributeError):
                continue
            return dataclasses.replace(found, platform=name, gpus=_gpus(environ, found.gpus))
    return JobPosition(gpus=_gpus(environ, None))


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = environ.get(name, "")
        if text.isdigit():
            return int(text)
    return None


def _needed(environ: Mapping[str, str], name: str) -> int:
    return int(environ[name])


def _gpus(environ: Mapping[str, str], told: int | None) -> int | None:
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return told
    listed = [part.strip() for part in chosen.split(",")]
    # CUDA ignores every entry from the first invalid one on.
    return next((n for n, part in enumerate(listed) if not part or part.startswith("-")), len(listed))


def _torch(environ: Mapping[str, str]) -> JobPosition:
    """Read torchrun's variables: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables

    Kubeflow, Vertex and TorchDistributor set them as well. Some start one process per host and omit the local
    variables.
    """
    rank, local_size = _needed(environ, "RANK"), _number(environ, "LOCAL_WORLD_SIZE")
    node = _number(environ, "GROUP_RANK")
    if node is None and (local_size or 1) == 1 and environ.get("LOCAL_RANK", "0") == "0":
        node = rank
    return JobPosition(
        node=node,
        nodes=_number(environ, "GROUP_WORLD_SIZE"),
        rank=rank,
        world_size=_needed(environ, "WORLD_SIZE"),
        local_rank=_number(environ, "LOCAL_RANK"),
        local_size=local_size,
        master_addr=environ.get("MASTER_ADDR"),
        master_port=_number(environ, "MASTER_PORT"),
    )


def _ompi(environ: Mapping[str, str]) -> JobPosition:
    """Read Open MPI's variables: https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html"""
    return JobPosition(
        rank=_needed(environ, "OMPI_COMM_WORLD_RANK"),
        world_size=_needed(environ, "OMPI_COMM_WORLD_SIZE"),
        local_rank=_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"),
        local_size=_number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE"),
    )


def _slurm(environ: Mapping[str, str]) -> JobPosition:
    """Read Slurm's variables.

    Source: https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
    """
    return JobPosition(
        node=_number(environ, "SLURM_NODEID"),
        nodes=_number(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
        rank=_needed(environ, "SLURM_PROCID"),
        world_size=_number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        local_rank=_number(environ, "SLURM_LOCALID"),
        master_addr=environ.get("SLURM_LAUNCH_NODE_IPADDR") if environ["SLURM_PROCID"] == "0" else None,
        gpus=_number(environ, "SLURM_GPUS_ON_NODE"),
    )


def _sagemaker(environ: Mapping[str, str]) -> JobPosition:
    """Read SageMaker's variables.

    Source: https://github.com/aws/sagemaker-training-toolkit/blob/master/ENVIRONMENT_VARIABLES.md
    """
    hosts = sorted(json.loads(environ["SM_HOSTS"]), key=lambda name: (len(name), name))
    return JobPosition(
        node=hosts.index(environ["SM_CURRENT_HOST"]),
        nodes=len(hosts),
        master_addr=hosts[0],
        gpus=_number(environ, "SM_NUM_GPUS"),
    )


def _tensorflow(environ: Mapping[str, str]) -> JobPosition:
    """Read TF_CONFIG.

    Source:
    https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    """
    config = json.loads(environ["TF_CONFIG"])
    order = [kind for kind in ("chief", "master", "worker", "ps", "evaluator") if config["cluster"].get(kind)]
    tasks = [(kind, index) for kind in order for index in range(len(config["cluster"][kind]))]
    rank = tasks.index((config["task"]["type"], int(config["task"]["index"])))
    first = config["cluster"][order[0]][0].rpartition(":")[0].strip("[]")
    return JobPosition(node=rank, nodes=len(tasks), rank=rank, world_size=len(tasks), master_addr=first)


def _kubernetes(environ: Mapping[str, str]) -> JobPosition:
    """Read the index of an Indexed Job.

    Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
    """
    return JobPosition(node=_needed(environ, "JOB_COMPLETION_INDEX"))


def _ray(environ: Mapping[str, str]) -> JobPosition:
    """Read Ray's variables.

    A worker of Ray has a job and GPUs; the program that starts the actors assigns ranks.
    Source: https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html
    """
    return JobPosition(drop=_crippled(environ))


def _spark(environ: Mapping[str, str]) -> JobPosition:
    """Read the variables of a Python worker of Spark.

    No variable has the index of its task. The index is in the BarrierTaskContext.
    Source:
        https://github.com/apache/spark/blob/master/core/src/main/scala/org/apache/spark/api/python/PythonRunner.scala
    """
    return JobPosition(drop=_crippled(environ))


def _crippled(environ: Mapping[str, str]) -> tuple[str, ...]:
    # Ray and Spark set this variable for workers with one core. A rank uses the cores of its host.
    return ("OMP_NUM_THREADS",) if environ.get("OMP_NUM_THREADS") == "1" else ()


_TABLE: Mapping[str, tuple[tuple[str, ...], Callable[[Mapping[str, str]], JobPosition]]] = {
    "torch": (("RANK", "WORLD_SIZE"), _torch),
    "ompi": (("OMPI_COMM_WORLD_RANK",), _ompi),
    "slurm": (("SLURM_PROCID",), _slurm),
    "sagemaker": (("SM_HOSTS", "SM_CURRENT_HOST"), _sagemaker),
    "tensorflow": (("TF_CONFIG",), _tensorflow),
    "kubernetes": (("JOB_COMPLETION_INDEX",), _kubernetes),
    "ray": (("RAY_JOB_ID",), _ray),
    "spark": (("SPARK_REUSE_WORKER",), _spark),
}
"""By platform: the variables that identify it, and the function that reads them."""
