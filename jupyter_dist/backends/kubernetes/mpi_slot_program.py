"""The program that mpirun starts on an MPIJob's workers: it occupies one rank's place.

It is sent as text, so it imports nothing of our package. It records mpirun's variables for the rank, which
our agent starts and which calls MPI_Init with them (worker/launchers/mpi_slot.py). It ends when a later
attempt asks for places.
"""

from __future__ import annotations

import json
import os
import sys
import time

__all__ = ["main"]

_LOOK_EVERY_S = 0.2


def _asked_for(folder: str) -> int:
    """Return the last attempt whose ranks have asked for places here."""
    names = (name.partition("asked-") for name in os.listdir(folder))
    return max((int(number) for before, mark, number in names if mark and not before), default=0)


def main(folder: str, turn: str) -> None:
    """Occupy the place. Returns when the place is released, or mpirun has ended."""
    parent, local = os.getppid(), os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]
    place = os.path.join(folder, turn)
    os.makedirs(place, mode=0o700, exist_ok=True)
    with open(f"{place}/.{local}", "w") as file:
        json.dump(dict(os.environ), file)
    # Before a rank can take the place: the rank's end can end mpirun.
    print("jupyter-dist: a place is taken", flush=True)  # for mpi_launcher_program.py
    os.replace(f"{place}/.{local}", f"{place}/{local}.json")
    while os.getppid() == parent and _asked_for(folder) <= int(turn):
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
