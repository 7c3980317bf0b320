"""Runs on the disk: a list of them, the run that a command means, and the runs that have ended."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, RunNotFound
from ..folder import RunFolder, find, runs
from ..job import State
from . import reader, run_labels

__all__ = [
    "RunRow",
    "choose",
    "disk_bytes",
    "ended_before",
    "list_runs",
]


@dataclass(frozen=True)
class RunRow:
    """One run in a list. Times are seconds since the epoch."""

    id: str
    state: State
    backend: str
    world_size: int
    created: float
    started: float | None
    ended: float | None
    notebook: str | None
    label: str
    reason: str | None
    size_bytes: int
    name: str = ""


def list_runs(limit: int | None = 20) -> list[RunRow]:
    """Return the newest runs, or all with `limit=None`. A run with damaged files is `lost`."""
    rows: list[RunRow] = []
    for folder in runs():
        if limit is not None and len(rows) >= limit:
            break
        row = _row(folder)
        if row is not None:
            rows.append(row)
    return rows


def _row(folder: RunFolder) -> RunRow | None:
    try:
        size = disk_bytes(folder.path)
        return _healthy_row(folder, size)
    except (RunNotFound, TypeError, ValueError) as error:
        # The folder is damaged, or belongs to another program. It is listed so that the user can remove it.
        created = _modified(folder)
        if created is None:
            return None  # removed during this call
        return RunRow(folder.id, State.LOST, "?", 0, created, None, None, None, "", str(error), size)


def _healthy_row(folder: RunFolder, size: int) -> RunRow:
    status, job = reader.status(folder), reader.job(folder)
    return RunRow(
        id=folder.id,
        state=status.state,
        backend=str(job.where),
        world_size=int(job.world_size),
        created=float(job.created),
        started=None if status.started is None else float(status.started),
        ended=None if status.ended is None else float(status.ended),
        notebook=None if job.notebook is None else str(job.notebook),
        label=str(job.label),
        reason=status.reason,
        size_bytes=size,
        name=run_labels.read(folder).name,
    )


def _modified(folder: RunFolder) -> float | None:
    try:
        return folder.path.stat().st_mtime
    except OSError:
        return None


def disk_bytes(path: Path) -> int:
    """Return the disk space of a folder in bytes.

    Files that vanish meanwhile count 0. Links are not followed.
    """
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return total


def choose(run_id: str | None, *, running: bool = False, last: str | None = None) -> RunFolder:
    """Return the run that a command means: the run with this id, else this kernel's last, else the newest.

    With `running` only running runs count. If several run, one of them must be this kernel's last run.
    Raises RunNotFound, InputError.
    """
    if run_id is not None:
        return find(run_id)
    known = list(runs())
    if not known:
        raise RunNotFound("there are no runs yet")
    own = [folder for folder in known if folder.id == last]
    if not running:
        return (own or known)[0]
    alive = [folder for folder in known if not reader.status(folder).state.ended]
    if not alive:
        raise RunNotFound("no run is running")
    mine = [folder for folder in alive if folder.id == last]
    if mine or len(alive) == 1:
        return (mine or alive)[0]
    raise InputError(
        f"{len(alive)} runs are running. Name one of them: {', '.join(f.id for f in alive[:10])}"
    )


def ended_before(when: float) -> list[RunFolder]:
    """Return the runs that had ended by that time."""
    found = []
    for folder in runs():
        status = reader.status(folder)
        try:
            ended = float(status.ended or status.created or 0.0)
        except (TypeError, ValueError):
            ended = 0.0
        if status.state.ended and (ended or _modified(folder) or 0.0) <= when:
            found.append(folder)
    return found
