"""The backend of a run that shows an Azure ML job.

It reads the job's resource, its run history and the blobs of its logs.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...errors import InputError
from ...folder import RunFolder
from ...job import Job, RankState, State
from ..attached_job import AttachedJob, JobEnd, JobStatus, lag_s, showing
from ..interface import Capabilities, Options
from ..job_watch import JobWatch, NotThere
from .checks import check_packages, whereabouts
from .jobs import end_job, look_again, look_at
from .log_owners import ranks_asked_for, workers_of
from .logs import JobLogs
from .options import AzureMlOptions
from .workspace import MlWorkspace, NotAllowed, WorkspaceId

__all__ = ["AttachedCommandJob", "SeenCommandOptions"]

_LOOK_EVERY_S = 3.0
_REFUSED_S, _AWAY_S = 30.0, 600.0
"""Seconds after the job's seen end that the backend waits for an unreadable log.

The first limit is for a log that the user may not read. The second is for a store that does not answer, or a
user without credentials.
"""
_OF_MANY = {
    "Sweep": ("a sweep job", "trials", "_0"),
    "Pipeline": ("a pipeline job", "steps", ""),
    "AutoML": ("an AutoML job", "trials", "_0"),
}
"""Kinds of jobs that only start other jobs: their description, their children, and the children's names."""


class SeenCommandOptions(Options):
    """The job and its workspace."""

    subscription: str
    resource_group: str
    workspace: str
    job: str


class _Client:
    """Reads one job and its logs."""

    def __init__(self, job: Job, folder: RunFolder, cursor: Any) -> None:
        workspace, name = MlWorkspace(_where(job.options)), str(job.options["job"])
        about = workspace.jobs("GET", name, f"look after the job {name!r}")["properties"]
        self._wanted = job.world_size
        known = (cursor or {}).get("logs", {})
        self._logs = JobLogs(workspace, name, folder, workers_of(about), known)
        seen = look_at(workspace, name)
        self._watch = JobWatch(functools.partial(look_again, workspace), seen, _LOOK_EVERY_S)
        self._unread: str | None = None
        """Why the log is not complete."""

    @property
    def cursor(self) -> Any:
        return {"logs": self._logs.positions}

    def look(self) -> JobStatus:
        seen, trouble = self._watch.seen, self._watch.trouble  # before its log, which is then complete
        logs, self._unread = self._logs, None
        try:
            rest_s = lag_s(logs.over) if logs.read(ended=seen.ended is not None) else math.inf
        except Exception as error:
            self._unread = str(error)
            trouble = trouble or self._unread
            rest_s = _REFUSED_S if isinstance(error, NotAllowed) else _AWAY_S
        state = State.PENDING
        if seen.ran or seen.status == "Running" or logs.ranks:
            state = State.RUNNING
        started = logs.began if seen.ended is not None or state is State.RUNNING else None
        count = max([self._wanted, *(rank + 1 for rank in logs.ranks)])
        ranks = tuple(RankState(rank, state, started=started) for rank in range(count))
        doing = f"runs on {seen.machines}" if seen.status == "Running" else seen.waits_for
        told = seen.ended or f"{seen.called} {doing}; see {seen.page}"
        detail = "; ".join(filter(None, (trouble, told)))
        if seen.ended is None:
            return JobStatus(state, ranks, detail)
        final = {"Completed": State.SUCCEEDED, "Canceled": State.STOPPED}.get(seen.status, State.FAILED)
        return JobStatus(state, ranks, detail, JobEnd(final, seen.ended, logs.over, rest_s))

    def close(self) -> str | None:
        self._logs.close()
        self._watch.close()
        seen = self._watch.seen
        lacking = "" if self._unread is None else f"; its log is not all here: {self._unread}"
        return f"{seen.called} on {seen.machines}: {seen.status}; see {seen.page}{lacking}"


def _end(options: Mapping[str, Any]) -> None:
    end_job(MlWorkspace(_where(options)), str(options["job"]), wait_s=0)


class AttachedCommandJob(AttachedJob):
    """Shows one job."""

    name: ClassVar[str] = "azureml-job"
    options: ClassVar[type[Options]] = SeenCommandOptions
    capabilities: ClassVar[Capabilities] = showing(stop_grace_s=30.0)

    def __init__(self) -> None:
        super().__init__(_Client, _end)

    @staticmethod
    def adopt(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run's job: fields of `Job`. `given`: the names of its workspace. Blocks.

        Raises InputError if the job does not exist, and other DistErrors.
        """
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,254}", name, re.ASCII):
            raise InputError(
                f"azureml:{name:.100} names no job. Write azureml:JOB, with the name of the job from "
                "its page in the studio, such as azureml:brave_moon_x1y2z3"
            )
        check_packages()
        named = {flag: text for flag, text in given.items() if text is not None}
        workspace = MlWorkspace(whereabouts(AzureMlOptions(**named), Path.cwd()))
        where = workspace.where
        try:
            about = workspace.jobs("GET", name, f"look after the job {name!r}")["properties"]
        except NotThere as error:
            raise InputError(
                f"the workspace {where.workspace!r} has no job {name!r} ({error}). A job's name is on "
                "its page in the studio, and is not its display name. Name another workspace with "
                "--workspace, --resource-group and --subscription"
            ) from error
        kind = str(about.get("jobType"))
        if kind in _OF_MANY:
            called, parts, such = _OF_MANY[kind]
            example = f", such as azureml:{name}{such}" if such else ""
            raise InputError(
                f"{name!r} is {called}. Its {parts} are separate jobs, and you can attach to each by "
                f"its name{example}. They are listed on {workspace.page(name)}"
            )
        return {
            "world_size": ranks_asked_for(about),
            "source": _written(name, where, about),
            "label": name,
            "options": SeenCommandOptions(
                subscription=where.subscription,
                resource_group=where.resource_group,
                workspace=where.workspace,
                job=name,
            ).model_dump(),
        }


def _where(told: Mapping[str, Any]) -> WorkspaceId:
    return WorkspaceId(told["subscription"], told["resource_group"], told["workspace"])


def _written(name: str, where: WorkspaceId, about: Mapping[str, Any]) -> str:
    """Return the text in place of the run's cell."""
    lines = [f"# the job {name} in the workspace {where.workspace}, which was started elsewhere"]
    for title in ("displayName", "experimentName", "environmentId"):
        if about.get(title):
            lines.append(f"# {title}: {about[title]}")
    return "\n".join([*lines, str(about.get("command") or "")])
