"""The process group of a session's ranks, after a cell that has failed.

Such a cell may have left a collective half done, so each rank closes its group. If `dist.init()` or the cell
had opened the group, the next cell begins with a new one.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from typing import Any

from ..output import events
from . import gloo_sockets, horovod_group

__all__ = ["advice", "begin_cell"]

_old: weakref.WeakSet[Any] = weakref.WeakSet()
"""Objects that communicate through a group that was closed."""


def begin_cell(main: Mapping[str, Any], *, reopen: str | None) -> None:
    """Open the process group again that the last cell has lost. Blocks until every rank has done so.

    `reopen`: the communicator of the group; None if the group of this rank can still be used.
    """
    if reopen is None:
        return
    from ..api import init

    horovod_group.close()
    gloo_sockets.close_group()
    init(reopen)
    module = sys.modules.get("torch.nn.parallel")
    if module is None:
        return
    names = sorted(name for name, value in main.items() if isinstance(value, module.DistributedDataParallel))
    _old.update(main[name] for name in names)
    if names:
        events.tell(
            "note: the process group is new, because a cell has failed or a rank has ended. "
            + " ".join(advice(name, main[name]) or "" for name in names)
        )


def advice(name: str, value: Any) -> str | None:
    """Return how to replace a name's object that refers to an old process group; None for another object."""
    if not any(value is one for one in _old):  # `in` would run the object's own code
        return None
    return (
        f"{name} refers to the old process group. Build it again: {name} = "
        f"DistributedDataParallel({name}.module)"
    )
