"""The request for a command job: the equivalent of the request of Azure's own SDK. Pure.

https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update
"""

from __future__ import annotations

from typing import Any

from ...job import Job
from ..platform_entrypoint import PROGRAM
from .environments import environment_of
from .inputs import arguments, job_input
from .options import SERVERLESS, AzureMlOptions

__all__ = ["command_job", "iso_duration", "job_name", "longest_s"]

_EXPERIMENT = "jupyter-dist"
_SPARE_S = 600.0
"""Spare seconds for the set-up of hosts, and for a run's own end."""
_IDENTITIES = {"managed": "Managed", "user": "UserIdentity"}


def job_name(run: str, attempt: int) -> str:
    """Return the name of a job. Names are unique in a workspace: two submissions yield one job."""
    return f"jupyter-dist-{run}-{attempt}"


def longest_s(job: Job, life_s: float | None) -> float | None:
    """Return after how many seconds the service itself ends a run's job, if no supervisor does so.

    Without --timeout it is `life_s`: after that time the hosts could not write to the mailbox. None: no
    limit.
    """
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
    """Return the body of the job. `workspace`: its id. `code`: the id of the code's version.

    `version`: of an environment whose name contains none.
    """
    count = asked.instances(world_size)
    resources: dict[str, Any] = {"instanceCount": count}
    told: dict[str, Any] = {
        "jobType": "Command",
        "displayName": name,
        "experimentName": asked.experiment or _EXPERIMENT,
        "codeId": code,
        "command": f"python {PROGRAM}{arguments(asked.input)}",
        "environmentId": environment_of(asked, workspace, version),
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
        # The service starts a process for each of them, and this is one per machine.
        servers = min(asked.ps, count - 1)
        return {
            "distributionType": "TensorFlow",
            "workerCount": count - servers,
            "parameterServerCount": servers,
        }
    return {"distributionType": "PyTorch", "processCountPerInstance": 1}


def iso_duration(seconds: float) -> str:
    """Return an ISO 8601 duration, the service's format for times."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "H"), (minutes, "M"), (rest, "S"))
    return "PT" + ("".join(f"{number}{unit}" for number, unit in parts if number) or "0S")
