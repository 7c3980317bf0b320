"""Checkpoints of paused trials: what a trial continues from, and the removal of old ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from fnmatch import fnmatch

from ..folder import RunFolder, trial_id
from ..hosts.arrivals import PARTS
from ..record import trials
from ..record.trials import Source, Trial
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


def remove_old(tuning: RunFolder, search: Search) -> None:
    """Remove the checkpoints from which no trial will continue, without those of the best trial."""
    found = trials.read(tuning).trials
    best = trials.best(found, search)
    assert search.schedule is not None
    for trial in _of_segments(found) if search.schedule.kind == "pbt" else _of_rungs(found):
        if trial != best:
            shutil.rmtree(RunFolder(tuning.path.parent / trial.run_id).checkpoints, ignore_errors=True)


def _of_segments(found: Sequence[Trial]) -> list[Trial]:
    """Return the trials before the last two segments. All trials of the one before the last have copies."""
    levels = sorted({one.before for one in found})
    return [one for one in found if len(levels) > 2 and one.before < levels[-2]]


def _of_rungs(found: Sequence[Trial]) -> list[Trial]:
    """Return the trials whose only successor has ended, and thus has a copy."""
    over = {one.source.trial for one in found if one.source is not None and one.ended is not None}
    return [one for one in found if one.number in over]
