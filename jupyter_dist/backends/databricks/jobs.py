"""One-time job runs of Databricks: submitted, watched, and ended. Every call may block.

https://docs.databricks.com/api/workspace/jobs
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..job_watch import JobView, NotThere, wait_or_stop
from .workspace import Workspace

__all__ = [
    "JobRun",
    "active_run",
    "end_run",
    "look_at",
    "remove_program",
    "see",
    "submit_run",
    "upload_program",
]

_ENDED = ("TERMINATED", "SKIPPED", "INTERNAL_ERROR")
_VERBS = {"CANCELED": "was cancelled", "TIMEDOUT": "ran out of its time", "SUCCESS": "has ended"}
_WAITS = {
    "QUEUED": "waits in the queue",
    "BLOCKED": "waits in the queue",
    "RUNNING": "runs, and has to start its hosts",
    "TERMINATING": "is ending",
}
_FINAL = ("INVALID_CLUSTER_REQUEST", "INVALID_RUN_CONFIGURATION", "RESOURCE_NOT_FOUND", "UNAUTHORIZED_ERROR")
"""Result codes for which a retry would fail in the same way."""


@dataclass(frozen=True)
class JobRun(JobView):
    """A job run as the workspace reports it."""

    number: int
    program: str
    """The path of the job run's program."""
    slots: Sequence[int]
    """Number of ranks on each host."""
    life: str


def submit_run(client: Any, body: Mapping[str, Any]) -> int:
    """Start a one-time run, and return its number. The same token returns the run that exists already."""
    from databricks.sdk.service.jobs import QueueSettings, SubmitTask

    typed = {"tasks": [SubmitTask.from_dict(task) for task in body["tasks"]]}
    return int(
        client.jobs.submit(**{**body, **typed, "queue": QueueSettings.from_dict(body["queue"])}).run_id
    )


def active_run(client: Any, name: str, since_s: float) -> JobRun | None:
    """Return the active run of that name, or None."""
    from databricks.sdk.service.jobs import RunType

    runs = client.jobs.list_runs(
        active_only=True, run_type=RunType.SUBMIT_RUN, start_time_from=int(since_s * 1000)
    )
    return next((see(client, run.run_id) for run in runs if run.run_name == name), None)


def see(client: Any, number: int) -> JobRun:
    """Return the state of a run."""
    run = client.jobs.get_run(number)
    task = run.tasks[0] if run.tasks else None
    program = None if task is None else task.spark_python_task
    ranks = (program.parameters or ["", ""])[1] if program else ""
    life = _word(run.state.life_cycle_state)
    page = run.run_page_url or f"job run {number}"
    waits = _WAITS.get(life, "waits for its cluster")
    seen = JobRun(
        number,
        program.python_file if program else "",
        tuple(int(part) for part in ranks.split(",") if part),
        life,
        called=f"job run {number}",
        page=page,
        waits_for=_with(waits, run.state.queue_reason or run.state.state_message),
        ending=life == "TERMINATING",
    )
    if life not in _ENDED:
        return seen
    details = run.status.termination_details if run.status else None
    code = _word(details.code) if details else ""
    result = _word(run.state.result_state) or life
    messages = [run.state.state_message, details.message if details else None]
    if task is not None and result not in ("SUCCESS", "CANCELED"):
        with contextlib.suppress(OSError):  # the output has more details, and is optional
            messages.insert(0, client.jobs.get_run_output(task.run_id).error)
    why = _with(f"job run {number} {_VERBS.get(result, 'has failed')}", next(filter(None, messages), None))
    named = f" ({code})" if code and code not in ("SUCCESS", "USER_CANCELED", "CANCELED") else ""
    return dataclasses.replace(
        seen,
        ended=f"{why}{named}; see {page}",
        final=code in _FINAL,
        # The platform itself cancels with another code, for example after the longest duration of a run.
        stopped=result == "CANCELED" and code in ("", "USER_CANCELED"),
    )


def look_at(workspace: Workspace, seen: JobRun) -> JobRun:
    """Return the new state of a run. Raises DistError."""
    try:
        with workspace.asking(f"look after {seen.called}") as client:
            return see(client, seen.number)
    except NotThere:
        return dataclasses.replace(seen, ended=f"{seen.called} is gone: it was deleted in the workspace")


def end_run(workspace: Workspace, number: int, *, wait_s: float) -> None:
    """End a run, as `wait_or_stop` does. A run that has not begun is stopped without waiting."""

    def look() -> JobRun:
        with workspace.asking(f"look after job run {number}") as client:
            return see(client, number)

    def stop() -> None:
        with workspace.asking(f"end job run {number}") as client:
            client.jobs.cancel_run(number)

    if wait_s and look().life not in ("RUNNING", "TERMINATING"):
        wait_s = 0.0
    wait_or_stop(look, stop, wait_s, is_over=lambda seen: seen.ended is not None)


def upload_program(client: Any, path: str, text: str) -> None:
    """Write a file into the user's own folder of the workspace. Only the user and admins can read it."""
    from databricks.sdk.service.workspace import ImportFormat

    client.workspace.mkdirs(path.rpartition("/")[0])
    client.workspace.upload(path, io.BytesIO(text.encode()), format=ImportFormat.AUTO, overwrite=True)


def remove_program(client: Any, path: str) -> None:
    """Delete the file. A missing file is no error."""
    from databricks.sdk.errors import NotFound

    with contextlib.suppress(NotFound):
        client.workspace.delete(path)


def _word(value: Any) -> str:
    return "" if value is None else str(value.value)


def _with(text: str, more: str | None) -> str:
    more = (more or "").strip().split("\n")[0].rstrip(".")[:300]
    return f"{text}: {more}" if more else text
