"""The entry point of a rank: `python -m jupyter_dist.worker`. The environment describes the rank."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import NoReturn

from .launchers import launched_rank, rank_folder

if __name__ == "__main__":
    gc.disable()  # until the end of the imports below: they leave nothing to collect
    if launched_rank.LAUNCHER in os.environ:
        # Enter before the imports below: the process that only waits then has imported next to nothing.
        launched_rank.enter()

from . import boot
from .api import file_barrier
from .horovod import rendezvous
from .launchers import horovodrun_rank, mpi_slot
from .rank import cell, main_snapshot
from .session import place

__all__ = ["main"]

_STORE_IS_NEEDED_S = 10.0


def main() -> NoReturn:
    """Run the rank that the environment describes, then end the process."""
    if mpi_slot.LENT in os.environ:
        mpi_slot.take(os.environ)
    run_folder = Path(os.environ["JUPYTER_DIST_RUN"])
    folder = rank_folder.rank_folder(os.environ)
    os.environ.pop(rank_folder.FOLDER, None)  # the processes that the cell starts must not see it
    if os.environ.get(rendezvous.HOW) == "elastic":
        horovodrun_rank.take_over(folder, int(folder.name))
    parent = os.environ.pop("JUPYTER_DIST_PARENT", None)
    if parent is not None:
        boot.die_with_parent(int(parent))
    lease = os.environ.pop("JUPYTER_DIST_GPU_LEASE", None)
    if lease is not None:
        from .gpus.record import hold

        hold(lease)  # the lease keeps the rank's GPUs reserved while the rank lives
    rank = os.getpid()
    try:
        boot.start(folder, int(folder.name))
        cwd = os.environ.pop("JUPYTER_DIST_CWD", None)
        if cwd is not None:
            os.chdir(cwd)
        session = os.environ.pop(place.VARIABLE, None)
        if session is not None:
            from .session import rank_loop  # a plain rank starts without these modules

            rank_loop.serve(Path(session))
        code, orderly = cell.run(run_folder, folder)
        if orderly and os.getpid() == rank:
            _keep_store(run_folder, int(folder.name))
    except boot.Terminated as stopped:
        # A stop can arrive before the cell begins and after its end. Such a stop is not the rank's fault.
        boot.hold_requests()
        code, orderly = int(stopped.code or 0), False
    if not orderly or os.getpid() != rank:
        # These handlers would wait for ranks that may never arrive. In a forked process they would also act
        # as the rank.
        atexit.unregister(launched_rank.finalize_mpi)
        horovodrun_rank.leave()
    if not orderly and os.getpid() == rank:
        boot.end_children()
    boot.end(code, orderly=orderly, last=main_snapshot.clear)


def _keep_store(run_folder: Path, rank: int) -> None:
    """Make rank 0 end last if the ranks used RPC.

    The other ranks still query the store in rank 0 when they leave `rpc.shutdown()`. A script rarely fails
    there: its interpreter takes longer to end than the other ranks take to query. torchrun keeps the store
    itself and sets TORCHELASTIC_USE_AGENT_STORE:
    https://github.com/pytorch/pytorch/blob/main/torch/distributed/rendezvous.py
    """
    rpc = sys.modules.get("torch.distributed.rpc.api")
    # The private attribute has the names of all workers. Without the attribute, rank 0 sometimes waits for
    # nothing.
    if rpc is None or not getattr(rpc, "_ALL_WORKER_NAMES", True):
        return
    if rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        attempt = int(os.environ.get("JUPYTER_DIST_ATTEMPT", 0))
        world_size = int(os.environ.get("WORLD_SIZE", 1))
        file_barrier.outlast(str(run_folder), attempt, rank, world_size, _STORE_IS_NEEDED_S)


if __name__ == "__main__":
    gc.enable()
    try:
        main()
    except BaseException:
        # The code above is not the user's. An error in it must still appear in the log.
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(70)
