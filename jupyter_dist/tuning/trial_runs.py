"""Folder of a trial, created from the tuning run's folder, and the trial's start."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import folder as folders
from ..folder import RunFolder
from ..job import Job
from ..launch import submission
from ..record.trials import Trial, search_of
from ..search.spec import RANKS, Search
from ..worker import payload
from . import checkpoints

__all__ = ["start"]


def start(tuning: RunFolder, job: Job, one: Trial, options: Mapping[str, Any] | None = None) -> None:
    """Start a trial. Does not wait for its supervisor. Raises LaunchError with nothing left behind.

    `options`: options of its backend, which replace the user's.

    Repeatable: if a process is killed anywhere in this function, a later call continues. A run has one
    supervisor, however often one is started.
    """
    about = job.tuning
    assert about is not None
    place = RunFolder(tuning.path.parent / one.run_id)
    with submission.remove_on_failure(place):
        search = search_of(about)
        trial = {**about["trial"], "options": {**about["trial"]["options"], **(options or {})}}
        if search.sizes:
            trial["world_size"] = one.parameters[RANKS]
        if not place.job.exists():
            _make(tuning, trial, search, one, place)
        header = payload.read_header(place.payload)
        why_cold = "--cold" if about["cold"] else None
        submission.start_supervisor(place, Job.from_json(trial), header, about["imports"], why_cold)


def _make(tuning: RunFolder, trial: Mapping[str, Any], search: Search, one: Trial, place: RunFolder) -> None:
    """Create a trial's folder.

    Large files exist once: arrays and modules are links to those of the tuning run.

    The parameters are in the payload's header, which every backend sends to the ranks.
    """
    shutil.rmtree(place.path, ignore_errors=True)  # a killed process may have left a part of it
    folders.create(place.path.parent, place.id, int(trial["world_size"]))
    # The number of ranks is no variable of the cell.
    given: dict[str, Any] = (
        {"most_steps": search.steps} if search.sizes else {"parameters": dict(one.parameters)}
    )
    if one.until is not None:
        given["pause"] = {"metric": search.metric, "values": one.until - one.before}
    payload.rewrite_header(tuning.payload, place.payload, {"is_trial": True, **given})
    _link_all(tuning.modules, place.modules)
    told: dict[str, Any] = {"of": tuning.id, "number": one.number, "parameters": dict(one.parameters)}
    told["parallel"] = search.parallel
    if one.source is not None:
        checkpoints.copy(tuning, one.source, place)
        told["source"] = dataclasses.asdict(one.source)
    if one.handle is not None:
        told["handle"] = dict(one.handle)
    # Written last, because a folder is a run once it has a job.
    folders.write_json(place.job, {**trial, "id": place.id, "created": time.time(), "trial": told})


def _link_all(source: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # the payload has no modules
        for entry in os.scandir(source):
            if entry.is_dir(follow_symlinks=False):
                _link_all(Path(entry.path), target / entry.name)
            else:
                folders.make_private(target)
                payload.link_or_copy(Path(entry.path), target / entry.name)
