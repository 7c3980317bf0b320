"""The request for a command job: what Azure's own SDK sends for the same. Pure.

https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update
"""

from __future__ import annotations

import re
from typing import Any

from ...errors import InputError
from ...job import Job
from ..platform_entrypoint import PROGRAM
from .inputs import arguments, job_input
from .options import SERVERLESS, AzureMlOptions

__all__ = ["command_job", "environment_id", "host_list", "instances", "iso_duration", "job_name", "longest_s"]

_EXPERIMENT = "jupyter-dist"
_SPARE_S = 600.0
"""For hosts to be set up, and for a run's end by itself."""
_IDENTITIES = {"managed": "Managed", "user": "UserIdentity"}


def job_name(run: str, attempt: int) -> str:
    """The name of a job. Names are unique in a workspace: submitted twice, there is one job."""
    return f"jupyter-dist-{run}-{attempt}"


def instances(asked: AzureMlOptions, world_size: int) -> int:
    """How many machines there are: none without a rank, which would be idle, and paid for."""
    return min(asked.instance_count, world_size)


def host_list(asked: AzureMlOptions, world_size: int) -> list[dict[str, Any]]:
    """The hosts by their numbers, with as many ranks each as -np comes to."""
    count = instances(asked, world_size)
    each = -(-world_size // count)
    return [{"name": f"node-{node}", "slots": each} for node in range(count)]


def environment_id(name: str, workspace: str, version: str | None = None) -> str:
    """The id of an environment. `version`: of one whose name says none."""
    name = name.removeprefix("azureml:")
    if name.startswith(("//", "/subscriptions/")):
        return f"azureml:{name}" if name.startswith("//") else name
    name, _, own = name.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InputError(
            f"--environment needs NAME, NAME:VERSION or azureml://registries/…, got {name!r:.100}"
        )
    return f"{workspace}/environments/{name}/versions/{own or version or 'LATEST'}"


def longest_s(job: Job, life_s: float | None) -> float | None:
    """After how long the service itself ends the job of a run, should nobody here be left to do so. Without
    --timeout it is `life_s`, after which its hosts could not write to the mailbox any more; None: always."""
    return life_s if job.timeout_s is None else (job.max_restarts + 1) * job.timeout_s + _SPARE_S


def command_job(
    asked: AzureMlOptions,
    name: str,
    world_size: int,
    workspace: str,
    code: str,
    *,
    version: str | None = None,
    longest_s: float | None = None,
) -> dict[str, Any]:
    """The body of the job. `workspace`: its id; `code`: the id of the code's version; `version`: of an
    environment whose name says none."""
    count = instances(asked, world_size)
    resources: dict[str, Any] = {"instanceCount": count}
    told: dict[str, Any] = {
        "jobType": "Command",
        "displayName": name,
        "experimentName": asked.experiment or _EXPERIMENT,
        "codeId": code,
        "command": f"python {PROGRAM}{arguments(asked.input)}",
        "environmentId": environment_id(asked.environment or "", workspace, version),
        "environmentVariables": {},
        "distribution": _distribution(asked, world_size, count),
        "resources": resources,
        "inputs": {key: job_input(key, text, workspace) for key, text in asked.input.items()},
        "outputs": {},
        "tags": dict(asked.tags),
        "isArchived": False,
    }
    if asked.compute == SERVERLESS:
        resources["instanceType"] = asked.instance_type
    else:
        told["computeId"] = f"{workspace}/computes/{asked.compute}"
    if asked.shm_size is not None:
        resources["shmSize"] = asked.shm_size
    if asked.spot:
        told["queueSettings"] = {"jobTier": "Spot"}
    if longest_s is not None:
        told["limits"] = {"jobLimitsType": "Command", "timeout": iso_duration(longest_s)}
    if asked.identity is not None:
        told["identity"] = {"identityType": _IDENTITIES[asked.identity]}
    return {"properties": told}


def _distribution(asked: AzureMlOptions, world_size: int, count: int) -> dict[str, Any]:
    if asked.distribution == "mpi":
        return {"distributionType": "Mpi", "processCountPerInstance": -(-world_size // count)}
    if asked.distribution == "tensorflow":
        # Which of the ranks are parameter servers is told to them by their agents, one of which each has.
        return {"distributionType": "TensorFlow", "workerCount": count, "parameterServerCount": 0}
    return {"distributionType": "PyTorch", "processCountPerInstance": 1}


def iso_duration(seconds: float) -> str:
    """A duration of ISO 8601, which the service keeps times in."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "H"), (minutes, "M"), (rest, "S"))
    return "PT" + ("".join(f"{number}{unit}" for number, unit in parts if number) or "0S")
