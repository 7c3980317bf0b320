"""The backend of a run that shows an Azure ML job which somebody else has started. It starts nothing.

The backend reads the job's resource, its run history and the blobs of its logs. A failed request does not end
the run.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...errors import InputError
from ...folder import RunFolder
from ...job import Job, Poll, RankState, State
from ..attached_job import AttachedJob
from ..interface import Capabilities, Handle, Options
from ..platform_job import JobWatch
from .checks import check_packages, whereabouts
from .jobs import CommandJob, end_job, look_again, look_at
from .log_owners import ranks_asked_for, workers_of
from .logs import JobLogs
from .options import AzureMlOptions
from .workspace import MlWorkspace, NotAllowed, NotThere, WorkspaceId

__all__ = ["AttachedCommandJob", "SeenCommandOptions"]

_LOOK_EVERY_S = 3.0
_LAG_S = 5.0
"""Seconds after a job's end within which its last output may appear in its log."""
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


class AttachedCommandJob(AttachedJob):
    """Shows one job. The handle is the job's name and options."""

    name: ClassVar[str] = "azureml-job"
    options: ClassVar[type[Options]] = SeenCommandOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        restarts=False, outlives=True, apart=True, visible=False, stacks=False, stop_grace_s=30.0
    )
    poll_interval_s: ClassVar[float] = 2.0

    def __init__(self) -> None:
        self._watch: JobWatch[CommandJob] | None = None
        self._logs: JobLogs | None = None
        self._ended_since: float | None = None
        self._unread: str | None = None
        """Why the log is not complete."""

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

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        return {"get": f"{_where(job.options).id}/jobs/{job.options['job']}"}

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        try:
            self._open(job, folder, handle, cursor)
        except Exception as error:
            return Poll(State.PENDING, self._ranks(handle, State.PENDING), cursor=cursor, detail=str(error))
        assert self._watch is not None
        assert self._logs is not None
        seen, trouble = self._watch.seen, self._watch.trouble  # before its log, which is then complete
        try:
            over = self._logs.read(ended=seen.ended is not None) and self._is_over(seen, self._logs)
            self._unread = None
        except Exception as error:
            self._unread = str(error)
            trouble = trouble or self._unread
            over = self._known_ended_s(seen) > (_REFUSED_S if isinstance(error, NotAllowed) else _AWAY_S)
        return self._as_poll(handle, self._logs, seen, over, trouble)

    def _known_ended_s(self, seen: CommandJob) -> float:
        """Return the seconds since the end was first seen, or a negative number while the job runs."""
        if seen.ended is None:
            return -1.0
        self._ended_since = self._ended_since or time.monotonic()
        return time.monotonic() - self._ended_since

    def _is_over(self, seen: CommandJob, logs: JobLogs) -> bool:
        """Return whether the job ended so long ago that no more output will appear."""
        known_s = self._known_ended_s(seen)
        return known_s >= 0 and max(known_s, time.time() - (logs.over or time.time())) > _LAG_S

    def _as_poll(
        self, handle: Handle, logs: JobLogs, seen: CommandJob, over: bool, trouble: str | None
    ) -> Poll:
        cursor = {"logs": logs.positions}
        if over:
            final = {"Completed": State.SUCCEEDED, "Canceled": State.STOPPED}.get(seen.status, State.FAILED)
            # The service reports only in its error text with which rank a failure began.
            of_rank = State.SUCCEEDED if final is State.SUCCEEDED else State.STOPPED
            ranks = self._ranks(handle, of_rank)
            return Poll(final, ranks, final=True, cursor=cursor, detail=seen.ended)
        runs = seen.ran or seen.status == "Running" or bool(logs.ranks)
        state = State.RUNNING if runs else State.PENDING
        doing = f"runs on {seen.machines}" if seen.status == "Running" else seen.waits_for
        told = seen.ended or f"{seen.called} {doing}; see {seen.page}"
        detail = "; ".join(filter(None, (trouble, told)))
        return Poll(state, self._ranks(handle, state), cursor=cursor, detail=detail)

    def _ranks(self, handle: Handle, state: State) -> tuple[RankState, ...]:
        """Return the requested ranks, and any further ranks that have printed something."""
        logs = self._logs
        known = logs.ranks if logs is not None else []
        began, over = (logs.began, logs.over) if logs is not None else (None, None)
        return tuple(
            RankState(
                rank,
                state,
                started=None if state is State.PENDING else began,
                ended=(over or time.time()) if state.ended else None,
            )
            for rank in range(max([handle["ranks"], *(rank + 1 for rank in known)]))
        )

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        """Cancel the job itself, as the user asked."""
        end_job(MlWorkspace(_where(handle)), str(handle["job"]), wait_s=0)

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        if self._logs is not None:
            self._logs.close()
        if self._watch is None:
            return None
        self._watch.close()
        seen = self._watch.seen
        lacking = "" if self._unread is None else f"; its log is not all here: {self._unread}"
        return f"{seen.called} on {seen.machines}: {seen.status}; see {seen.page}{lacking}"

    def _open(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> None:
        if self._watch is not None:
            return
        workspace = MlWorkspace(_where(handle))
        name = str(handle["job"])
        about = workspace.jobs("GET", name, f"look after the job {name!r}")["properties"]
        known = (cursor or {}).get("logs", {})
        self._logs = JobLogs(workspace, name, folder, workers_of(about), known)
        seen = look_at(workspace, name)
        self._watch = JobWatch(functools.partial(look_again, workspace), seen, _LOOK_EVERY_S)


def _where(told: Mapping[str, Any]) -> WorkspaceId:
    return WorkspaceId(told["subscription"], told["resource_group"], told["workspace"])


def _written(name: str, where: WorkspaceId, about: Mapping[str, Any]) -> str:
    """Return the text in place of the run's cell."""
    lines = [f"# the job {name} in the workspace {where.workspace}, which was started elsewhere"]
    for title in ("displayName", "experimentName", "environmentId"):
        if about.get(title):
            lines.append(f"# {title}: {about[title]}")
    return "\n".join([*lines, str(about.get("command") or "")])
