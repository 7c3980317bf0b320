"""Attachment to a job that somebody else has started: `sagemaker:JOB` becomes a run that shows it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from .. import backends, folder
from ..errors import DistError, InputError, RunNotFound
from ..folder import RunFolder
from ..job import Job
from ..launch import submission
from ..record import reader

__all__ = ["adopt", "is_elsewhere", "refuse_flags"]

_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")


def is_elsewhere(name: str) -> bool:
    """Return whether `name` has the form BACKEND:JOB."""
    return ":" in name


def _own(job: str) -> RunFolder | None:
    """Return the run that has started the job, or its trial that is the job.

    None if it is not on this machine.
    """
    found = _RUN_ID.search(job)
    if found is None:
        return _trial_of(job, folder.runs(trials=True))
    try:
        run = folder.find_exact(found[0])
    except RunNotFound:
        return None
    return _trial_of(job, folder.trials_of(run)) or run


def _trial_of(job: str, runs: Iterable[RunFolder]) -> RunFolder | None:
    """Return the trial among these runs that a platform's tuning has started as that job."""
    for run in runs:
        with contextlib.suppress(RunNotFound):
            handle = (reader.job(run).trial or {}).get("handle") or {}
            if job in handle.values():
                return run
    return None


def refuse_flags(given: Mapping[str, Any], shows: backends.Showing | None = None) -> None:
    """Raise InputError for a flag that does not apply to this job. Without `shows`, for any flag."""
    known = {name for how in backends.SHOWING.values() for name in how.flags}
    for name, value in given.items():
        if name not in known:
            raise InputError(f"attach has no option {name!r}. The options are {', '.join(sorted(known))}")
        if value is not None and (shows is None or name not in shows.flags):
            of = [f"{one}:{how.named}" for one, how in backends.SHOWING.items() if name in how.flags]
            raise InputError(
                f"{name} works only with a job that jupyter-dist did not start, as in "
                f"{' or '.join(of)}. Remove it"
            )


def _fields(shows: backends.Showing, job: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the backend that shows the job, and the fields of the run's job. Blocks. Raises DistError."""
    try:
        return shows.by, backends.declared(shows.by).adopt(job, given)  # type: ignore[attr-defined]
    except DistError as error:
        if shows.tuning_by is not None:
            with contextlib.suppress(DistError):
                tuning = backends.declared(shows.tuning_by)
                return shows.tuning_by, tuning.adopt(job, given)  # type: ignore[attr-defined]
        raise error


def adopt(name: str, given: Mapping[str, Any]) -> RunFolder:
    """Return the run that shows BACKEND:JOB, and start it if there is none yet. Blocks.

    If a run of this machine has started the job, the result is that run. `given`: flags that lead to the job,
    such as `region`. Raises DistError.
    """
    backend, _, job = name.partition(":")
    shows = backends.SHOWING.get(backend)
    if shows is None or not job:
        *others, last = (f"{one}:{how.named}" for one, how in backends.SHOWING.items())
        raise InputError(f"attach needs the id of a run, {', '.join(others)} or {last}, got {name!r}")
    refuse_flags(given, shows)
    own = _own(job)
    if own is not None:
        return own
    by, fields = _fields(shows, job, given)
    started_by = fields.pop("id", None)
    with contextlib.suppress(RunNotFound):
        if started_by is not None:
            return folder.find_exact(started_by)
    for known_run in folder.runs():
        try:
            found = reader.job(known_run)
        except RunNotFound:
            continue
        if found.backend == by and dict(found.options) == fields["options"]:
            return known_run
    now = time.time()
    made = Job(
        id=folder.new_id(),
        backend=by,
        created=now,
        cwd=os.getcwd(),
        python=sys.executable,
        stall_timeout_s=None,
        **fields,
    )
    return submission.launch_watch(made)
