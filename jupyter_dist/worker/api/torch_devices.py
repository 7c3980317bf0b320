"""torch on a rank, and whether the rank has a GPU of its own."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["has_gpu", "shares_gpu", "torch_for"]


def torch_for(caller: str) -> Any:
    """Return torch. Raises ModuleNotFoundError that names the function of `dist` if it is not installed."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"dist.{caller}() needs PyTorch on every rank: pip install torch", name="torch"
        ) from None
    return torch


def has_gpu(torch: Any) -> bool:
    """Return whether the run gives this rank a GPU, or a part of one."""
    return os.environ.get("JUPYTER_DIST_GPUS", "") != "0" and bool(torch.cuda.is_available())


def shares_gpu(torch: Any, ranks: int) -> bool:
    """Return whether this rank has a GPU that another rank uses too, which NCCL refuses.

    `ranks`: the number of ranks on this machine.
    """
    if not has_gpu(torch):
        return False
    own = os.environ.get("JUPYTER_DIST_GPUS")
    return 0 < float(own) < 1 if own else ranks > max(torch.cuda.device_count(), _gpus_of_srun())


def _gpus_of_srun() -> int:
    """Return the number of GPUs that srun's ranks have on this machine. 0 if srun has not started the ranks.

    With --gpus-per-task, each rank sees only its own GPUs. Source: https://slurm.schedmd.com/srun.html
    """
    # JupyterLab itself can be a task of Slurm, alone in its step. Then its ranks inherit these variables.
    if os.environ.get("SLURM_STEP_NUM_TASKS") != os.environ.get("WORLD_SIZE"):
        return 0
    gpus = os.environ.get("SLURM_GPUS_ON_NODE", "")
    return int(gpus) if gpus.isdigit() else 0
