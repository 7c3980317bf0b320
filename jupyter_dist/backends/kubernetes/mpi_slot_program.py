"""What mpirun starts on an MPIJob's workers: it holds the place of one rank, which our agent starts.

It is sent as text, so this module stands alone. What mpirun tells it is written down for the rank, which
calls MPI_Init with that (worker/launchers/mpi_slot.py). It gives the place up when a later attempt asks for
its own.
"""

from __future__ import annotations

import json
import os
import sys
import time

__all__ = ["main"]

_LOOK_EVERY_S = 0.2


def _asked_for(folder: str) -> int:
    """The last attempt whose ranks have asked for places here."""
    names = (name.partition("asked-") for name in os.listdir(folder))
    return max((int(number) for before, mark, number in names if mark and not before), default=0)


def main(folder: str, turn: str) -> None:
    """Returns when the place is given up, or mpirun is there no more."""
    parent, local = os.getppid(), os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]
    place = os.path.join(folder, turn)
    os.makedirs(place, mode=0o700, exist_ok=True)
    with open(f"{place}/.{local}", "w") as file:
        json.dump(dict(os.environ), file)
    os.replace(f"{place}/.{local}", f"{place}/{local}.json")
    while os.getppid() == parent and _asked_for(folder) <= int(turn):
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
