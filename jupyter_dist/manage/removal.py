"""Removal of runs that have ended: named runs, or all old runs."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Iterable

from ..errors import DistError, InputError
from ..folder import RunFolder, trials_of, unfinished
from ..job import State
from ..record import reader
from ..record.run_list import disk_bytes, ended_before
from ..worker.file_locks import try_lock

__all__ = ["clean", "remove", "remove_abandoned"]

_LONGEST_LAUNCH_S = 86_400
"""A launch counts as abandoned after this time, if it is on another host, or has no lock."""


def remove(folders: Iterable[RunFolder]) -> int:
    """Delete runs, and the trials of a tuning run with it. Returns the bytes freed.

    Raises InputError, with nothing removed, if one of the runs still runs.
    """
    # Trials are removed before their tuning run. If that fails halfway, the user can remove the run again.
    whole = [part for folder in folders for part in (*trials_of(folder), folder)]
    chosen = list({folder.id: folder for folder in whole}.values())
    alive = [folder.id for folder in chosen if not reader.status(folder).state.ended]
    if alive:
        # An unwatched run has not ended either. Only its folder can find its ranks again.
        raise InputError(
            (f"Run {alive[0]} has" if len(alive) == 1 else f"Runs {', '.join(alive)} have")
            + f" not ended. First run `%dist stop {' '.join(alive)}`. Nothing was removed"
        )
    linked = [str(folder.path) for folder in chosen if folder.path.is_symlink()]
    if linked:
        raise InputError(
            f"{linked[0]!r} is a symbolic link, and the folder of a run never is. Nothing was "
            "removed. Delete the link yourself"
        )
    freed = 0
    for folder in chosen:
        size = disk_bytes(folder.path)
        try:
            # job.json is removed last, so that a partly removed run is still listed and can be removed again.
            for entry in os.scandir(folder.path):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                elif entry.name != folder.job.name:
                    os.unlink(entry.path)
            shutil.rmtree(folder.path)
        except FileNotFoundError:
            pass  # another process has removed it
        except OSError as error:
            raise DistError(
                f"cannot remove {str(folder.path)!r}: {error.strerror or error} ({error.filename})"
            ) from None
        freed += size
    return freed


def clean(days: float) -> tuple[list[str], int]:
    """Delete the runs that ended more than that many days ago. Returns their ids and the bytes freed.

    Also delete the folders of runs whose kernel was killed during the launch. Runs that cannot be removed now
    are left for the next call. Raises InputError.
    """
    if not math.isfinite(days) or days < 1:
        raise InputError(f"days must be at least 1, got {days}")
    removed, freed = remove_abandoned()
    for folder in ended_before(time.time() - days * 86_400):
        if reader.status(folder).state is State.LOST and not folder.state.exists():
            continue  # it may not have ended
        try:
            freed += remove([folder])
        except DistError:
            continue
        removed.append(folder.id)
    return removed, freed


def remove_abandoned() -> tuple[list[str], int]:
    """Delete the folders of runs whose kernel was killed during the launch. They are in no list.

    A launch keeps the folder locked while it writes. A session's supervisor locks the complete folder after
    that, and then writes the job. Returns the ids and the bytes freed.
    """
    removed, freed = [], 0
    for folder in unfinished():
        with contextlib.suppress(OSError, DistError):
            if _is_between_locks(folder):
                continue
            lock = try_lock(folder.resume_lock, _may_be_launching)
            if lock is not None:
                try:
                    if not folder.job.exists() and not _is_between_locks(folder):
                        freed += remove([folder])
                        removed.append(folder.id)
                finally:
                    lock.release()
    return removed, freed


def _is_between_locks(folder: RunFolder) -> bool:
    """Return whether a launch may use a folder that nobody has locked. Raises OSError."""
    if folder.payload.exists():
        written = folder.payload
    elif not folder.resume_lock.exists():
        written = folder.path
    else:
        return False
    return _may_be_launching(time.time() - written.stat().st_mtime)


def _may_be_launching(age_s: float) -> bool:
    return age_s < _LONGEST_LAUNCH_S
