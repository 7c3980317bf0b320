"""The DistributedDataParallel objects of process groups that were closed.

Such an object has hooks on the parameters of its model. While anything refers to it, a traceback for example,
its hooks would use the closed group in each backward pass of the model, also if the model has a new object.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import Any

from .. import foreign_names
from .instances import instances

__all__ = ["are", "note_all"]

_old: weakref.WeakSet[Any] = weakref.WeakSet()


def are(value: object) -> bool:
    """Return whether a value is such an object."""
    return any(value is one for one in _old)  # `in` would run the object's own code


def note_all() -> None:
    """Note all objects that exist: every group was closed. Their hooks are removed.

    Their next forward pass fails: without hooks, the gradients would differ between ranks without a word.
    """
    module = sys.modules.get("torch.nn.parallel")
    if module is None:
        return
    lost = foreign_names.lost("worker/session/old_models")
    for each in instances(module.DistributedDataParallel):
        if not are(each):
            _old.add(each)
            if not lost:
                with contextlib.suppress(Exception):  # one whose constructor has failed
                    each._remove_autograd_hooks()
                    each.register_forward_pre_hook(_refuse)


def _refuse(ddp: Any, _arguments: Any) -> None:
    """Raise RuntimeError before a forward pass for which DistributedDataParallel prepares its hooks."""
    if sys.modules["torch"].is_grad_enabled() and ddp.require_backward_grad_sync:
        raise RuntimeError(
            "this DistributedDataParallel belongs to a process group that was closed, because a cell has "
            "failed or a rank has ended. Build it again: DistributedDataParallel(ddp.module)"
        )
