"""The MPI identity of a process of mpirun, for a rank that an agent has started.

Platforms such as SageMaker, Azure ML and an MPIJob start their processes with mpirun themselves. One of these
processes then waits for each rank. The process has written Open MPI's variables to a file
(backends/platform_entrypoint.py, or backends/kubernetes/mpi_slot_program.py in an MPIJob). With those
variables, MPI_Init of the rank succeeds as if the rank were that process. PMIx identifies a client by its
message and its user, not by its pid.

Each identity works once. After a client has begun MPI and has ended, mpirun accepts no second client. Open
MPI 4.1 reports "getting local rank failed". In an MPIJob mpirun is started again for another attempt.
Elsewhere another attempt works only without MPI, and gets an error when it begins MPI.
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
"""The variable with the folder of a host's identities, each in LOCAL_RANK.json."""

_WAITS_S = 150.0
"""The time limit of the wait. In an MPIJob, mpirun starts beside our agents, with a timeout of its own."""
_BEGINS_MPI = ("mpi4py.MPI", "horovod.common.basics")
"""Modules with which a rank begins MPI."""
_OF_MPIRUN = ("OMPI_", "OPAL_", "ORTE_", "PMI_", "PMIX_", "PRTE_", "SMDATAPARALLEL_")


def of_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that distinguish mpirun's processes."""
    return {name: value for name, value in environ.items() if name.startswith(_OF_MPIRUN)}


def take(environ: MutableMapping[str, str]) -> None:
    """Replace mpirun's variables in the environment by those of this rank's identity."""
    attempt = int(environ.get("JUPYTER_DIST_ATTEMPT", "0"))
    place = _place(environ.pop(LENT), environ["LOCAL_RANK"], attempt)
    with open(place) as file:
        lent = of_launcher(json.load(file))
    for name in of_launcher(environ):
        del environ[name]
    environ.update(lent)
    mark = os.path.join(os.path.dirname(place), f"used-{environ['LOCAL_RANK']}")
    sys.addaudithook(_once(mark, attempt))
    atexit.register(finalize_mpi)  # registered before the user's handlers, which therefore run earlier


def _place(folder: str, local: str, attempt: int) -> str:
    """Return the file of this rank's identity, and wait for it.

    The file is in `folder`, or in a subfolder for each start of mpirun. mpirun is started again if an attempt
    asks for it.
    Raises RuntimeError after 150 s.
    """
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
    """Return an audit hook for imports that allows MPI to begin once.

    The hook leaves a mark before MPI begins, and raises RuntimeError if an earlier attempt began MPI.
    """

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
