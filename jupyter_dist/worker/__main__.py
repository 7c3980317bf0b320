"""A rank's whole life: `python -m jupyter_dist.worker`, told what it is by its environment."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import NoReturn

from .launchers import launched_rank, rank_folder

if __name__ == "__main__" and launched_rank.LAUNCHER in os.environ:
    launched_rank.enter()  # here, so that the process that only waits has imported next to nothing

from . import boot
from .api import file_barrier
from .horovod import rendezvous
from .launchers import horovodrun_rank, mpi_slot
from .rank import cell, main_snapshot

__all__ = ["main"]

_STORE_IS_NEEDED_S = 10.0


def main() -> NoReturn:
    """Be the rank that the environment describes; ends the process."""
    if mpi_slot.LENT in os.environ:
        mpi_slot.take(os.environ)
    run_folder = Path(os.environ["JUPYTER_DIST_RUN"])
    folder = rank_folder.rank_folder(os.environ)
    os.environ.pop(rank_folder.FOLDER, None)  # not for what the cell starts
    if os.environ.get(rendezvous.HOW) == "elastic":
        horovodrun_rank.take_over(folder, int(folder.name))
    parent = os.environ.pop("JUPYTER_DIST_PARENT", None)
    if parent is not None:
        boot.die_with_parent(int(parent))
    lease = os.environ.pop("JUPYTER_DIST_GPU_LEASE", None)
    if lease is not None:
        from .gpus.record import hold

        hold(lease)  # its GPUs are taken as long as it lives
    rank = os.getpid()
    try:
        boot.start(folder, int(folder.name))
        cwd = os.environ.pop("JUPYTER_DIST_CWD", None)
        if cwd is not None:
            os.chdir(cwd)
        code, orderly = cell.run(run_folder, folder)
        if orderly and os.getpid() == rank:
            _keep_store(run_folder, int(folder.name))
    except boot.Terminated as stopped:
        # A stop may arrive before the cell begins and after its end: it is no fault of the rank's.
        code, orderly = int(stopped.code or 0), False
    if not orderly or os.getpid() != rank:
        # They would wait for ranks that may never come, or speak for the rank that has forked this process.
        atexit.unregister(launched_rank.finalize_mpi)
        horovodrun_rank.leave()
    if not orderly and os.getpid() == rank:
        boot.end_children()
    boot.end(code, orderly=orderly, last=main_snapshot.clear)


def _keep_store(run_folder: Path, rank: int) -> None:
    """Have rank 0 end last where RPC was used.

    The others still ask the store in rank 0 when they leave `rpc.shutdown()`. A script is lucky there: its
    interpreter takes longer to end than the others take to ask. torchrun keeps the store itself, and says so:
    https://github.com/pytorch/pytorch/blob/main/torch/distributed/rendezvous.py
    """
    rpc = sys.modules.get("torch.distributed.rpc.api")
    # The names of all workers; it is private, and without it rank 0 waits for nothing once in a while.
    if rpc is None or not getattr(rpc, "_ALL_WORKER_NAMES", True):
        return
    if rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        attempt = int(os.environ.get("JUPYTER_DIST_ATTEMPT", 0))
        world_size = int(os.environ.get("WORLD_SIZE", 1))
        file_barrier.outlast(str(run_folder), attempt, rank, world_size, _STORE_IS_NEEDED_S)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        # Nothing above is the user's code; what breaks here must still reach the log.
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(70)
