"""Surroundings of a rank that explain its error: its folder, full disks, the memory of its children."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import resource
import shutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from typing import Any

__all__ = ["of"]

_NEARLY_FULL = 0.01
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LOCAL = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems that always answer. The server of another one may be down."""
_OF_WORKERS = "DataLoader worker"
_LOADER = os.path.join("torch", "utils", "data", "dataloader.py")


def of(error: BaseException) -> dict[str, Any]:
    """Return what helps to explain an error, as JSON. Empty for most errors."""
    found: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # the error itself is reported in any case
        host = {"hostname": socket.gethostname()}
        for one in _chain(error):
            if _says_full(one):
                found |= {"disks": _full_disks(one), **host}
            elif _OF_WORKERS in str(one) or _is_of_a_loader(one):
                found["worker_gone"] = True
                multiprocessing.active_children()  # this call waits for ended children, and counts them
                unit = 1 if sys.platform == "darwin" else 1024
                found["children_peak_bytes"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
        # The code has handled an error that is only the context of another one.
        cause = error.__cause__ or error
        if isinstance(cause, FileNotFoundError) and not _is_of_a_program(cause):
            found |= {"missing": os.fsdecode(cause.filename), "cwd": os.getcwd(), **host}
        if _prunes(error):
            found["pruned"] = True
    return found


def _prunes(error: BaseException) -> bool:
    """Return whether the cell has raised Optuna's TrialPruned. Such a cell has imported Optuna."""
    kind = getattr(sys.modules.get("optuna"), "TrialPruned", None)
    return isinstance(kind, type) and isinstance(error, kind)


def _is_of_a_loader(error: BaseException) -> bool:
    """Return whether the connection to a DataLoader's worker broke before the loader saw the worker's end."""
    if not isinstance(error, (ConnectionError, EOFError)):
        return False
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return any(file.endswith(_LOADER) for file in files)


def _is_of_a_program(error: OSError) -> bool:
    """Return whether a program is missing, which is searched in PATH."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == subprocess.__file__


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__


def _says_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    # torch.save and others raise an error of their own.
    return os.strerror(errno.ENOSPC) in str(error)


def _full_disks(error: BaseException) -> list[dict[str, Any]]:
    """Return the disk of the error's file, or all full disks if the file is unknown, as after a write."""
    name = getattr(error, "filename", None)
    if isinstance(name, (str, bytes)):
        named = _mount(os.path.dirname(os.path.abspath(os.fsdecode(name))))
        places, most = [named], 1.0
    else:
        places, most = [_mount(os.getcwd()), *_local_mounts()], _NEARLY_FULL
    found: dict[int, dict[str, Any]] = {}
    for place in places:
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(place)
            if disk.total and disk.free <= most * disk.total:
                entry = {"place": place, "free": disk.free, "total": disk.total}
                found.setdefault(os.stat(place).st_dev, entry)
    return list(found.values())


def _local_mounts() -> list[str]:
    """Return where local disks are mounted for writing. Linux only."""
    found = []
    with contextlib.suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            _, place, kind, options, *_ = line.split(" ")
            if kind in _LOCAL and "rw" in options.split(","):
                found.append(place.replace("\\040", " "))
    return found


def _mount(place: str) -> str:
    place = os.path.realpath(place)
    while not os.path.ismount(place):
        place = os.path.dirname(place)
    return place
