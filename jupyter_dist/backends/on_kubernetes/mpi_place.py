"""What mpirun starts on an MPIJob's workers: it holds the place of one rank, which our agent starts.

It is sent as text, so this module stands alone. What mpirun tells it is written down for the rank, which calls
MPI_Init with that (worker/lent_place.py).
"""

from __future__ import annotations

import json
import os
import sys
import time

__all__ = ["main"]


def main(folder: str) -> None:
    """Returns when mpirun is there no more; its daemon ends this program before that, if it can."""
    parent, local = os.getppid(), os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(f"{folder}/.{local}", "w") as file:
        json.dump(dict(os.environ), file)
    os.replace(file.name, f"{folder}/{local}.json")
    while os.getppid() == parent:
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1])
