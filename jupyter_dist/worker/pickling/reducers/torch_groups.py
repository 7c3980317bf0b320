"""Objects of torch that belong to a process group of the notebook's: refused, or sent with a note.

Ranks join a group of their own. A model that was wrapped for the notebook's group would have no group there.
https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from typing import Any

from . import Note, Refused

__all__ = ["reduce"]


def reduce(obj: Any, note: Note) -> Any:
    kind = type(obj).__name__
    if hasattr(obj, "num_replicas"):
        note(
            f"every rank gets part {obj.rank} of {obj.num_replicas} from the {kind} of the notebook. "
            "Create the sampler inside the cell, after dist.init(), so that each rank gets a part of its own"
        )
        return NotImplemented
    if hasattr(obj, "module"):
        raise Refused(
            f"a model that {kind} has wrapped for a process group, which no other process can join",
            "Use the model itself, which is the attribute `module`. Wrap it inside the cell, after "
            "dist.init().",
        )
    raise Refused(
        f"a {kind}, which no other process can join",
        "Create it inside the cell, after dist.init().",
    )
