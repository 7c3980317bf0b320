"""The backend `databricks`: ranks on the workers of a Databricks cluster, from a JupyterLab anywhere.

A one-time job run starts one barrier task per host (barrier_program.py). Each task starts our agent. A Unity
Catalog Volume is the mailbox between the hosts and this machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from importlib import metadata
from typing import Any, ClassVar

from ...errors import InputError
from ...folder import RunFolder
from ...job import Job
from ..interface import Capabilities, Extensions, Options
from ..platform_job import PlatformJob
from .client import DatabricksClient, program_path
from .jobs import JobRun
from .options import DatabricksOptions
from .request import check_cluster, host_list, job_request, price, spread
from .workspace import Workspace, profiles

__all__ = ["Databricks"]


class Databricks(PlatformJob[JobRun]):
    """The run's hosts are the barrier tasks of one job run, which serves all attempts of the run."""

    name: ClassVar[str] = "databricks"
    options: ClassVar[type[Options]] = DatabricksOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        outlives=True, apart=True, visible=False, submit_limit_s=300.0, interrupts=True, sessions=True
    )
    extensions: ClassVar[Extensions] = Extensions(price=lambda ranks, options: price(options))

    def __init__(self) -> None:
        super().__init__(JobRun, "job_run", _platform_client)

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        return check_cluster(world_size, DatabricksOptions(**options))

    def detect(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with contextlib.suppress(metadata.PackageNotFoundError, InputError):
            found["databricks-sdk"] = metadata.version("databricks-sdk")
            known = profiles(os.environ)
            if known or os.environ.get("DATABRICKS_HOST"):
                found["profiles"] = ", ".join(known) or "none"
            else:
                found["no_site"] = (
                    "There is no profile of Databricks, and DATABRICKS_HOST is not set. In a terminal: "
                    "databricks auth login. Or write --host"
                )
        return found

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        asked = DatabricksOptions(**job.options)
        slots = spread(job.world_size, asked.nodes)
        told: Any = host_list(slots) if asked.new_cluster else "as many as the cluster has workers"
        body = job_request(job.id, attempt, program_path("YOU", job.id, attempt), slots, asked)
        return {"hosts": told, "mailbox": asked.mailbox, "submit": body}


def _platform_client(job: Job, folder: RunFolder) -> DatabricksClient:
    asked = DatabricksOptions(**job.options)
    return DatabricksClient(Workspace(asked.host, asked.profile), asked, folder.id)
