"""Command jobs: described and ended. Every call may block.

https://learn.microsoft.com/rest/api/azureml/jobs/get
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import DistError
from ..job_watch import JobView, NotThere, wait_or_stop
from .workspace import MlWorkspace

__all__ = ["CommandJob", "end_job", "look_again", "look_at", "read"]

_WAITS = {
    "NotStarted": "waits to be taken on",
    "Starting": "waits to be taken on",
    "Provisioning": "waits for its machines",
    "Queued": "waits in the queue of its compute",
    "Preparing": "has its image and code prepared",
    "Running": "runs, and has to start its hosts",
    "Finalizing": "is ending",
    "CancelRequested": "is being cancelled",
    "Paused": "is paused",
    "NotResponding": "does not answer",
}
_BEFORE = ("NotStarted", "Starting", "Provisioning", "Queued", "Preparing")
_ENDED = {"Completed": "has ended", "Failed": "has failed", "Canceled": "was cancelled"}


@dataclass(frozen=True)
class CommandJob(JobView):
    """A job as the workspace reports it."""

    name: str
    status: str
    machines: str
    """The number and type of the job's machines, for the user."""
    ran: bool = False
    """Whether the job was seen running."""

    @property
    def preempted(self) -> str | None:
        """Text for the user that the machines were preempted. The service restarts the job on others."""
        if self.ran and self.status in _BEFORE:
            return f"{self.called} has lost its machines and {self.waits_for}"
        return None


def read(told: Mapping[str, Any], page: str) -> CommandJob:
    """Parse an answer. Pure. `page`: the job's page, if the answer names none."""
    name, about = str(told["name"]), told["properties"]
    status = str(about.get("status") or "NotStarted")
    studio = (about.get("services") or {}).get("Studio") or {}
    page = str(studio.get("endpoint") or page)
    resources = about.get("resources") or {}
    kind = resources.get("instanceType") or str(about.get("computeId") or "").rpartition("/")[2]
    ended = None
    if status in _ENDED:
        ended = f"job {name} {_ENDED[status]}; see {page}"
    return CommandJob(
        name,
        status,
        f"{resources.get('instanceCount') or 1} × {kind or 'machines'}",
        called=f"job {name}",
        page=page,
        waits_for=_WAITS.get(status, f"is {status}"),
        ended=ended,
        ending=status in ("CancelRequested", "Finalizing"),
        stopped=status == "Canceled",
    )


def look_at(workspace: MlWorkspace, name: str) -> CommandJob:
    """Return the state of a job. Raises NotThere."""
    seen = read(workspace.jobs("GET", name, f"look after the job {name!r}"), workspace.page(name))
    return _explained(workspace, seen) if seen.status == "Failed" else seen


def look_again(workspace: MlWorkspace, seen: CommandJob) -> CommandJob:
    """Return the new state of a job. Raises DistError."""
    try:
        found = look_at(workspace, seen.name)
        return dataclasses.replace(found, ran=seen.ran or found.status == "Running")
    except NotThere:
        why = f"{seen.called} is gone: nobody knows it in the workspace {workspace.where.workspace!r}"
        return dataclasses.replace(seen, ended=why)


def _explained(workspace: MlWorkspace, seen: CommandJob) -> CommandJob:
    """Return the job with the reason for its end, which the job's resource lacks.

    The reason may stay unknown.
    """
    with contextlib.suppress(DistError, KeyError, TypeError, AttributeError):
        told = workspace.history(f"runs/{seen.name}/details", f"ask why the job {seen.name!r} has failed")
        error = ((told.get("error") or {}).get("error")) or {}
        said = " ".join(str(error.get("message") or "").split()).rstrip(".")[:1000]
        if said:
            final = error.get("code") == "UserError" and "quota" not in said.lower()
            return dataclasses.replace(
                seen, ended=f"{seen.called} has failed: {said}; see {seen.page}", final=final
            )
    return seen


def end_job(workspace: MlWorkspace, name: str, *, wait_s: float) -> CommandJob:
    """End a job, as `wait_or_stop` does."""
    return wait_or_stop(
        lambda: look_at(workspace, name),
        lambda: workspace.jobs("POST", f"{name}/cancel", f"cancel the job {name!r}"),
        wait_s,
        is_over=lambda seen: seen.ended is not None or seen.ending,
    )
