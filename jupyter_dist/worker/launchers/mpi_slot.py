"""Take the place that a process of mpirun's holds for this rank, which an agent has started.

Where a platform starts its processes with mpirun itself, as SageMaker, Azure ML and an MPIJob do, one of them
waits for each rank. It has written down what Open MPI told it (backends/platform_entrypoint.py, or
backends/kubernetes/mpi_slot_program.py in an MPIJob). With those variables MPI_Init of the rank is that
process's: PMIx knows a client by what it says and by its user, not by its pid.

It lends a place once: after a client that has begun MPI and has ended, no second one is taken (seen with
Open MPI 4.1: "getting local rank failed"). In an MPIJob mpirun is started anew for another attempt. Elsewhere
that is good for all that goes without MPI, and is told so where it begins MPI.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from .launched_rank import finalize_mpi

__all__ = ["LENT", "of_launcher", "take"]

LENT = "JUPYTER_DIST_LENT"
"""The variable that says where a host's places are written down, each as LOCAL_RANK.json."""

_WAITS_S = 150.0
"""In an MPIJob mpirun is started beside our agents, and has its own patience with the workers."""
_BEGINS_MPI = ("mpi4py.MPI", "horovod.common.basics")
"""Modules with which a rank begins MPI."""
_OF_MPIRUN = ("OMPI_", "OPAL_", "ORTE_", "PMI_", "PMIX_", "PRTE_", "SMDATAPARALLEL_")


def of_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """What tells mpirun's processes apart."""
    return {name: value for name, value in environ.items() if name.startswith(_OF_MPIRUN)}


def take(environ: MutableMapping[str, str]) -> None:
    """Put into the environment what the place of this rank has, in place of what another one's has."""
    attempt = int(environ.get("JUPYTER_DIST_ATTEMPT", "0"))
    place = _place(environ.pop(LENT), environ["LOCAL_RANK"], attempt)
    with open(place) as file:
        lent = of_launcher(json.load(file))
    for name in of_launcher(environ):
        del environ[name]
    environ.update(lent)
    mark = os.path.join(os.path.dirname(place), f"used-{environ['LOCAL_RANK']}")
    sys.addaudithook(_once(mark, attempt))
    atexit.register(finalize_mpi)  # before the user's: those run earlier


def _place(folder: str, local: str, attempt: int) -> str:
    """Where the place of this rank is written down: in the folder; or in a folder in there for each time that
    mpirun was started, which is started anew where an attempt asks for it."""
    once = os.path.join(folder, f"{local}.json")
    if os.path.exists(once):
        return once
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, f"asked-{attempt}"), "w"):
        pass
    deadline = time.monotonic() + _WAITS_S
    while time.monotonic() < deadline:
        turns = sorted(int(name) for name in os.listdir(folder) if name.isdigit() and int(name) >= attempt)
        place = os.path.join(folder, str(turns[-1] if turns else attempt), f"{local}.json")
        if os.path.exists(place):
            return place
        time.sleep(0.05)
    raise RuntimeError(
        f"mpirun has not started a process for this rank within {_WAITS_S:g} s. See the log of its pod"
    )


def _once(mark: str, attempt: int) -> Callable[[str, tuple[Any, ...]], None]:
    """Sees what is imported: leaves a mark before MPI begins, and refuses where an earlier attempt did."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "import" or arguments[0] not in _BEGINS_MPI:
            return
        with open(mark, "a+") as file:
            file.seek(0)
            before = file.read()
            if not before:
                file.write(str(attempt))
        if before and int(before) < attempt:
            raise RuntimeError(
                f"attempt {attempt} cannot use MPI, because mpirun starts each rank only once, and "
                f"attempt {before} has used it. Run the cell again, or use --max-restarts with "
                "another --distribution"
            )

    return hook
