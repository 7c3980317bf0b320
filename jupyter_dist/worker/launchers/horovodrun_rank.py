"""First steps of a rank that horovodrun has started: it finds its network, its folder and its GPUs."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import re
import socket
import sys
from collections.abc import MutableMapping
from pathlib import Path

from .. import layout
from ..line_file import append_line

__all__ = ["GPUS", "SLOTS", "claim", "leave", "prepare", "take_over"]

SLOTS = "JUPYTER_DIST_HOROVOD_SLOTS"
"""The folder in which the ranks of an elastic run record which slot uses which rank folder."""
GPUS = "JUPYTER_DIST_HOROVOD_GPUS"
"""The GPUs of this machine, which the slots of an elastic run share: `0,1;2,3`."""


def prepare(environ: MutableMapping[str, str]) -> None:
    """Complete a rank's variables.

    In an elastic run, also find its folder and remove the previous rank's end.
    """
    interfaces = environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    if "JUPYTER_DIST_STAGE" in environ and interfaces[0] and "HOROVOD_GLOO_IFACE" in environ:
        # horovodrun uses the interface names of its own host, which can differ here.
        there = {name for _, name in socket.if_nameindex()}
        chosen = next((name for name in interfaces if name in there), interfaces[0])
        environ["HOROVOD_GLOO_IFACE"] = environ["GLOO_SOCKET_IFNAME"] = chosen
    from ..horovod import output_files
    from . import rank_folder

    slots, gpus = environ.pop(SLOTS, None), environ.pop(GPUS, None)
    if slots is None:
        told = re.search(r"~\d+\.(\d+)\.\d+$", environ.get("HOROVOD_HOSTNAME", ""))
        # In an elastic run over several hosts, the slot's name contains the number of the folder.
        if told is not None:
            _share(environ, gpus, int(told[1]))
            take_over(rank_folder.rank_folder(environ), int(environ[rank_folder.FOLDER]))
            output_files.place(environ, rank_folder.rank_folder(environ))
        return
    # A slot of this machine gets another spelling of 127.0.0.1 with each failure
    # (backends/horovod/host_discovery.py).
    host = re.sub(r"^(127\.0+\.0)\.0*1$", r"\1.1", environ["HOROVOD_HOSTNAME"])
    slot = f"{host}:{environ['HOROVOD_LOCAL_RANK']}"
    index = claim(Path(slots), slot, int(environ["HOROVOD_RANK"]))
    environ[rank_folder.FOLDER] = str(index)
    _share(environ, gpus, index)
    take_over(rank_folder.rank_folder(environ), index)
    output_files.place(environ, rank_folder.rank_folder(environ))


def _share(environ: MutableMapping[str, str], gpus: str | None, index: int) -> None:
    if gpus is not None:
        shares = gpus.split(";")
        share = shares[index % len(shares)]
        environ["CUDA_VISIBLE_DEVICES"] = share or "-1"
        together = shares.count(share)
        count = f"{1 / together:g}" if together > 1 else str(len(share.split(",")))
        environ["JUPYTER_DIST_GPUS"] = count if share else "0"


def claim(slots: Path, slot: str, rank: int) -> int:
    """Return the rank folder of a slot: its previous folder, otherwise that of its rank if it is free.

    Ranks change when other ranks leave or join, folders do not.
    """
    slots.mkdir(0o700, exist_ok=True)
    for name in os.listdir(slots):
        if (slots / name).read_text() == slot:
            return int(name)
    for index in itertools.count(rank):
        try:
            fd = os.open(slots / str(index), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(fd, "w") as file:
            file.write(slot)
        return index
    raise AssertionError


def take_over(place: Path, index: int) -> None:
    """Continue in the folder of a rank that has ended. Its log and metrics stay; its end is removed."""
    if not (place / layout.EVENTS).exists():
        return
    for name in (layout.ERROR, layout.RESULT):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place / name)
    text = f"rank {index} has ended and was replaced: a new process continues here"
    append_line(place / layout.OUTPUT, f"jupyter_dist: {text}\n".encode())


def leave() -> None:
    """Skip Horovod's shutdown at exit in a rank that failed.

    The shutdown waits for the other ranks and makes them fail. Their errors would be reported before the
    error that matters.
    """
    for name in ("horovod.torch.mpi_ops", "horovod.tensorflow.mpi_ops"):
        basics = getattr(sys.modules.get(name), "_basics", None)
        if basics is not None:
            atexit.unregister(basics.shutdown)
