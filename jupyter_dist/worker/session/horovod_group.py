"""The exit from an operation of Horovod, its end after a failed cell, and new optimizers for an old model.

Horovod's background thread carries operations out, and a rank that waits for one hears no signal. If all
ranks answer, Horovod ends on all of them once one rank shuts it down. If a rank does not answer, another
thread shuts the sockets of Horovod down. Both raise HorovodInternalError in the waiting code.

An optimizer of horovod.torch has hooks on its parameters, and exists as long as these. In a session the next
cell may make another one for the same model. Horovod refuses to average a gradient for both under one name.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ..horovod.rendezvous import peers
from ..import_hooks import call
from ..patching import wrap, wrap_copies
from .instances import instances

__all__ = ["close", "leave", "watch"]

_ANSWER_S = 0.3
"""How long the other ranks may take to agree that Horovod ends."""
_NOTE = (
    "Horovod was shut down, because a cell has failed. Call hvd.init() again. Then broadcast the parameters, "
    "because some ranks may be a step ahead."
)

_opened: list[Any] = []
"""The bindings on which the cells have called `init`: those of horovod.torch or horovod.tensorflow."""
_has_left = False
_shutting_down = threading.Lock()
_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()


def watch() -> None:
    """Note from now on which bindings of Horovod cells open."""
    call("horovod.common.basics", _patch)
    call("horovod.torch.optimizer", _patch_optimizers)


def _patch() -> None:
    basics = sys.modules["horovod.common.basics"].HorovodBasics
    wrap(basics, "init", _noting)
    wrap(basics, "shutdown", _one_at_a_time)


def _patch_optimizers() -> None:
    wrap_copies(sys.modules["horovod.torch.optimizer"], "DistributedOptimizer", _replacing)


def _replacing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let the hooks of earlier optimizers of the same parameters do nothing. Their `step` still averages."""

    def make(*args: Any, **options: Any) -> Any:
        new = original(*args, **options)
        own = {id(parameter) for group in new.param_groups for parameter in group["params"]}
        for earlier in list(_optimizers):
            groups = earlier.param_groups
            if any(id(parameter) in own for group in groups for parameter in group["params"]):
                earlier.set_backward_passes_per_step(sys.maxsize)
        _optimizers.add(new)
        return new

    return make


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **options: Any) -> Any:
        if not any(self is one for one in _opened):
            _opened.append(self)
        return original(self, *args, **options)

    return init


def _one_at_a_time(original: Callable[..., Any]) -> Callable[..., Any]:
    def shutdown(self: Any) -> None:
        with _shutting_down:  # Horovod ends the process if two threads join its background thread
            original(self)

    return shutdown


def leave() -> None:
    """Make the operations of Horovod that wait for another rank raise. Another thread than theirs calls this.

    Blocks for 0.3 s if another rank does not answer.
    """
    global _has_left
    threads = []
    for one in list(_opened):
        if one.is_initialized():
            _has_left = True
            threads.append(threading.Thread(target=one.shutdown, daemon=True))
            threads[-1].start()
    until = time.monotonic() + _ANSWER_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    peers.let_go()


def close() -> str | None:
    """Shut Horovod down if it is open. The next `hvd.init()` of all ranks opens it again.

    Returns the note for the user; None if Horovod was not open.
    """
    global _has_left
    leave()
    if not _has_left:
        return None
    for one in _opened:
        one.shutdown()
    _opened.clear()
    _has_left = False
    module = sys.modules.get("horovod.torch")
    if module is not None:
        # This also resets the numbers of operations, which are names of tensors. Another rank may have begun
        # fewer operations.
        module.shutdown()
        _reset_optimizers()
    return _NOTE


def _reset_optimizers() -> None:
    """Make the optimizers of horovod.torch forget the operations that they wait for.

    Their own method for elastic training does so: load_state_dict.
    """
    for value in instances(sys.modules["torch.optim"].Optimizer):
        if hasattr(type(value), "skip_synchronize"):
            with contextlib.suppress(Exception):  # the user's own class may fail
                value.load_state_dict(value.state_dict())
