"""The backend `azureml`: ranks in a command job of Azure Machine Learning, from a JupyterLab anywhere.

A job's machines run our host program in place of a training script (backends/platform_entrypoint.py). The
host program runs our agent. A blob container of a workspace's datastore has the mailbox between the hosts and
this machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from ...folder import RunFolder
from ...job import Job
from ...search.spec import Search
from ..interface import Capabilities, Extensions, Options, PlatformSearch
from ..platform_job import PlatformJob
from ..platform_trial import adopted_job
from .checks import check_command, whereabouts
from .client import AzureMlClient, code_id, mailbox_of
from .environments import anonymous, environment_of
from .jobs import CommandJob
from .mailbox_access import LIFE
from .options import AzureMlOptions
from .request import command_job, job_name, longest_s
from .sweep_request import check_search, sweep_job, sweep_name
from .workspace import MlWorkspace, workspace_here

__all__ = ["AzureMl"]


def _search_request(search: Search, trial: Job, timeout_s: float | None) -> dict[str, Any]:
    """Return the request for a sweep job that starts trials like this one. Pure.

    `timeout_s`: of all trials together.
    """
    asked = AzureMlOptions(**trial.options)
    workspace, name = whereabouts(asked, Path(trial.cwd)).id, sweep_name(trial.id)
    code = code_id(workspace, name)
    most_s = longest_s(dataclasses.replace(trial, timeout_s=timeout_s, max_restarts=0), _life_s(asked))
    return {
        "put": f"{workspace}/jobs/{name}",
        "body": sweep_job(search, asked, name, trial.world_size, workspace, code, longest_s=most_s),
    }


_NO_WORKSPACE = (
    "The folder {!r} and its parents have no config.json of a workspace. Download it from the studio, or "
    "write --workspace, --resource-group and --subscription."
)


class AzureMl(PlatformJob[CommandJob]):
    """The run's hosts are the machines of one command job, which serves all attempts of the run."""

    name: ClassVar[str] = "azureml"
    options: ClassVar[type[Options]] = AzureMlOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        outlives=True,
        apart=True,
        visible=False,
        submit_limit_s=300.0,
        stop_grace_s=30.0,
        interrupts=True,
        sessions=True,
    )
    # The service chooses the values, so that no package is needed.
    extensions: ClassVar[Extensions] = Extensions(
        search=PlatformSearch(
            check=lambda search, options: check_search(search),
            request=_search_request,
            stopping_rules=True,
        )
    )

    def __init__(self) -> None:
        super().__init__(CommandJob, "command_job", _platform_client)

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        return check_command(world_size, AzureMlOptions(**options))

    def detect(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with contextlib.suppress(metadata.PackageNotFoundError, OSError):
            found["azure-identity"] = metadata.version("azure-identity")
            here = workspace_here(os.environ, folder := Path.cwd())
            none = _NO_WORKSPACE.format(str(folder))
            found |= {"workspace": here["workspace"]} if here else {"no_site": none}
        return found

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        asked = AzureMlOptions(**job.options)
        workspace, name = whereabouts(asked, Path(job.cwd)).id, job_name(job.id, attempt)
        code, most_s = code_id(workspace, name), longest_s(job, _life_s(asked))
        made = anonymous(asked)
        return {
            **({} if made is None else {"environment": {environment_of(asked, workspace): made[1]}}),
            "hosts": asked.host_list(job.world_size),
            "mailbox": mailbox_of(asked),
            "put": f"{workspace}/jobs/{name}",
            "body": command_job(asked, name, job.world_size, workspace, code, longest_s=most_s),
        }


def _life_s(asked: AzureMlOptions) -> float | None:
    """Return how long our signature is valid, in seconds, if the hosts write with one."""
    return LIFE.total_seconds() if asked.identity is None else None


def _platform_client(job: Job, folder: RunFolder) -> AzureMlClient:
    asked = AzureMlOptions(**job.options)
    workspace = MlWorkspace(whereabouts(asked, Path(job.cwd)))
    return AzureMlClient(workspace, asked, folder, adopted_job(job, "command_job"))
