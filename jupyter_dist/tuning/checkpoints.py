"""Checkpoints of paused trials: what a trial continues from, and the removal of old ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from fnmatch import fnmatch

from ..folder import RunFolder, trial_id
from ..hosts.arrivals import PARTS
from ..record import trials
from ..record.trials import FAILED, Source
from ..search.spec import Search

__all__ = ["are_missing", "copy", "remove_old"]


def copy(tuning: RunFolder, source: Source, place: RunFolder) -> None:
    """Copy the checkpoints of the source to the folder of a trial that continues from it.

    They are copies and no links, because a cell may write into a file that it has loaded. Blocks on the disk.
    """
    found = RunFolder(tuning.path.parent / trial_id(tuning.id, source.trial)).checkpoints
    if found.is_dir():
        parts = shutil.ignore_patterns(PARTS)
        shutil.copytree(found, place.checkpoints, symlinks=True, ignore=parts, dirs_exist_ok=True)


def are_missing(place: RunFolder) -> bool:
    """Return whether the trial has saved nothing in `dist.checkpoint_dir()`."""
    files = (name for _, _, names in os.walk(place.checkpoints) for name in names)
    return all(fnmatch(name, PARTS) for name in files)


def remove_old(tuning: RunFolder, search: Search, needed: Collection[int]) -> None:
    """Remove the checkpoints from which no trial will continue, without those of the best trial.

    `needed`: the numbers of the trials from which one may continue. A trial that has ended by itself, or was
    stopped, also keeps its checkpoints. They are results.
    """
    found = trials.read(tuning).trials
    best = trials.best(found, search)
    for trial in found:
        is_left = trial.paused or trial.state == FAILED
        if is_left and trial.number not in needed and trial != best:
            shutil.rmtree(RunFolder(tuning.path.parent / trial.run_id).checkpoints, ignore_errors=True)
