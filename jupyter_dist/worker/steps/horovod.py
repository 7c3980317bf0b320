"""Waits in Horovod's collectives, as far as Python sees them."""

from __future__ import annotations

from types import ModuleType

from ..patching import wrap_copies
from . import Part, timed

__all__ = ["patch"]


def patch(module: ModuleType) -> None:
    """Time the waits of horovod.torch, whose collectives call `synchronize`.

    `module`: horovod.torch.mpi_ops.
    """
    for name in ("synchronize", "barrier", "join"):
        wrap_copies(module, name, lambda original: timed(original, Part.COLLECTIVES))
