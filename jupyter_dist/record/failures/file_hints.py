"""Advice on a file that is missing, a disk that is full, and a DataLoader's worker that was killed."""

from __future__ import annotations

import os
import re
from typing import Any

from ...job import Job
from ...text.format import size
from ...text.safe import one_line
from .failures import RankError

__all__ = ["of_surroundings"]

_KILLED = re.compile(r"DataLoader worker \(pid.{0,40}?(?:killed by signal: (?:Killed|9)|exited unexpectedly)")
_BROKEN = ("ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "EOFError")
"""Errors of the connection to a worker that has ended. The DataLoader may not have seen its end yet."""


def of_surroundings(error: RankError, job: Job) -> list[str]:
    """Return the advice that follows from what the rank reported of its surroundings."""
    try:
        found = (_full_disk(error), _missing_file(error, job), _killed_worker(error))
    except (KeyError, TypeError, ValueError):
        return []  # a rank may write anything
    return [advice for advice in found if advice is not None]


def _missing_file(error: RankError, job: Job) -> str | None:
    """Say in which folder, and on which host, the rank did not find the file."""
    if "missing" not in error.around:
        return None
    name, cwd = (one_line(str(error.around[key]), 200) for key in ("missing", "cwd"))
    here = os.path.join(job.cwd, name)
    where = f"rank {error.rank} runs in {cwd!r} on host {_host(error)}"
    cure = f", and {name!r} is relative to that folder. Use an absolute path"
    if os.path.isabs(name):
        where, cure = f"there is no {name!r} on host {_host(error)}, where rank {error.rank} runs", ""
    elsewhere = bool(job.options.get("hosts")) or os.path.realpath(cwd) != os.path.realpath(job.cwd)
    if elsewhere and os.path.exists(here):
        return f"{where}. The file is on this machine: {here!r}. Copy it to the host, or use a shared folder"
    return where + cure


def _full_disk(error: RankError) -> str | None:
    """Name the full disks, and how full they are."""
    if "disks" not in error.around:
        return None
    disks: list[dict[str, Any]] = error.around["disks"][:3]
    told = [
        f"{one_line(str(disk['place']), 100)!r} has {size(int(disk['free']))} free of "
        f"{size(int(disk['total']))}"
        for disk in disks
    ]
    where = f": {' and '.join(told)}" if told else ", or a quota is used up"
    return f"a disk of host {_host(error)} is full{where}. Remove files there, or write elsewhere"


def _killed_worker(error: RankError) -> str | None:
    """Say that a worker process of a DataLoader was killed, with the memory of the largest worker."""
    broken = error.type in _BROKEN and error.around.get("worker_gone") is True
    if not broken and not _KILLED.search(error.message):
        return None
    peak = int(error.around.get("children_peak_bytes", 0))
    memory = f" The largest worker had {size(peak)}." if peak > 0 else ""
    return (
        f"a worker process of the DataLoader was killed, probably because memory ran out.{memory} Use fewer "
        "num_workers or a smaller prefetch_factor, or load less in each worker"
    )


def _host(error: RankError) -> str:
    return one_line(str(error.host or error.around.get("hostname", "?")), 80)
