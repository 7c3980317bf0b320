"""Checkpoints that a training function reports to Ray Train.

They are kept with the run's, and found after a restart. A reported folder is usually temporary, so its files
are copied. Ranks of one host that report under one name share one folder, as with Ray. Beside the folders are
files with the reports of each rank, by attempt. A checkpoint counts when all ranks have passed it.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from .. import api
from ..api import folders

__all__ = ["keep", "newest", "reported"]

_FOLDER = "ray-train"


def keep(checkpoint: Any, report: int, name: str | None) -> Path:
    """Copy a `ray.train.Checkpoint` that this rank has reported. `report` is the number of its report."""
    attempt = api.attempt()
    folder = _place() / (name or f"checkpoint_{report:06d}" + (f"_attempt_{attempt}" if attempt else ""))
    with checkpoint.as_directory() as given:
        shutil.copytree(given, folder, dirs_exist_ok=True, copy_function=_copy)
    _write(f".checkpoint-{attempt}-{report}", folder.name)
    return folder


def reported(report: int) -> None:
    """Record that this rank has passed the report with that number."""
    if _place(make=False).is_dir():
        _write(f".reported-{api.attempt()}-by-{api.rank()}", str(report))


def newest() -> tuple[int, Path] | None:
    """Return the last checkpoint that all ranks had passed in an earlier attempt, if any.

    The result has the number of the checkpoint's report, and the path.
    Raises RuntimeError if ranks on several hosts would find different ones.
    """
    if api.attempt() == 0:
        return None
    if api.world_size() != api.local_world_size():
        raise RuntimeError(
            "ray.train.get_checkpoint() after a restart needs all ranks on one host, because "
            "hosts do not see each other's checkpoints. Save to a folder that all hosts share, "
            "and load from there"
        )
    found = [
        (int(match[1]), int(match[2]), path)
        for path in _place(make=False).glob(".checkpoint-*")
        if (match := re.fullmatch(r"\.checkpoint-(\d+)-(\d+)", path.name)) and int(match[1]) < api.attempt()
    ]
    for attempt, report, path in sorted(found, reverse=True):
        if all(_last(attempt, rank) >= report for rank in range(api.world_size())):
            return report, path.parent / path.read_text()
    return None


def _last(attempt: int, rank: int) -> int:
    try:
        return int((_place(make=False) / f".reported-{attempt}-by-{rank}").read_text())
    except FileNotFoundError:
        return -1


def _place(*, make: bool = True) -> Path:
    folder = folders.checkpoint_dir() / _FOLDER
    if make:
        folder.mkdir(exist_ok=True)
    return folder


def _write(name: str, text: str) -> None:
    part = _place() / f"{name}.{api.rank()}.part"
    part.write_text(text)
    part.replace(_place() / name)


def _copy(source: str, target: str) -> str:
    # Ranks may report the same file at the same time. A reader sees the complete file or none.
    part = f"{target}.{api.rank()}.part"
    shutil.copy2(source, part)
    os.replace(part, target)
    return target
