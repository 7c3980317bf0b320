"""The process groups of a session's ranks: their collectives end with a cell that fails.

Such a cell may have left a collective half done, so each rank closes its group. If `dist.init()` or
accelerate had opened the group, the next cell begins with a new one.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from ..api import cell_state
from ..output import events
from ..rank import collectives
from . import gloo_sockets, horovod_group, nccl_groups, old_models, tensorflow_collectives

__all__ = ["advice", "begin_cell", "close", "leave", "opens_again", "watch"]


def watch() -> None:
    """Note from now on what torch, Horovod and TensorFlow open."""
    for module in (gloo_sockets, nccl_groups, horovod_group, tensorflow_collectives):
        module.watch()


def leave() -> None:
    """Make every collective of this process end that waits for another rank.

    Another thread than theirs calls this, after it has signalled the main thread. Blocks for 0.5 s if the
    process uses NCCL, and for 0.3 s if a rank with Horovod does not answer.
    """
    for module in (gloo_sockets, nccl_groups, tensorflow_collectives, horovod_group):
        with contextlib.suppress(Exception):  # without its thread, the rank would hear of no cell any more
            module.leave()


def close() -> tuple[str | None, list[str]]:
    """Close all groups. Returns the communicator of torch's group, and notes for the user.

    The communicator is None if no group of torch was open.
    """
    notes = []
    for module in (horovod_group, tensorflow_collectives):
        try:
            notes.append(module.close())
        except Exception:  # the rank must not end: it has the names
            traceback.print_exc()
    group = gloo_sockets.close_group()
    if group is not None:
        old_models.note_all()
    return group, [note for note in notes if note is not None]


def opens_again() -> bool:
    """Return whether the user's code expects the present group to stay open.

    accelerate opens one only in a process that has had none. An Accelerator, a PartialState and the
    TrainingArguments of transformers share the state of a PartialState.
    """
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    return cell_state.opened_group or bool(getattr(state, "_shared_state", None))


def begin_cell(main: Mapping[str, Any], *, reopen: str | None) -> None:
    """Open the process group again that the last cell has lost. Blocks until every rank has done so.

    `reopen`: the communicator of the group, which is closed; None if the group can still be used.
    """
    if reopen is None:
        return
    from ..api import init

    init(reopen)
    if reopen == "gloo":
        # A rank whose cell fails at once would otherwise close the group while others still open it.
        sys.modules["torch.distributed"].barrier()
        collectives.forget(own=1)
    told = [advice(name, main[name]) for name in sorted(main)]
    if any(told):
        events.tell(
            "note: the process group is new, because a cell has failed or a rank has ended. "
            + " ".join(filter(None, told))
        )


def advice(name: str, value: Any) -> str | None:
    """Return how to replace a name's object that refers to an old process group; None for another object."""
    if not old_models.are(value):
        return None
    return (
        f"{name} refers to the old process group. Build it again: {name} = "
        f"DistributedDataParallel({name}.module)"
    )
