"""Calls of this rank that wait for other ranks and that no recorder of a library knows.

These are point-to-point operations, Horovod's tensors, TensorFlow's functions, the opening of a process
group, and barriers by files. Calls with the same group and number belong together, as in the flight recorder
of torch. A group is a channel between two ranks, a tensor's name, or a function that all ranks call.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = [
    "CHANNEL",
    "HOROVOD",
    "NCCL",
    "TENSORFLOW",
    "WORLD",
    "Call",
    "begin",
    "channel",
    "forget",
    "forget_all",
    "snapshot",
    "waiting",
]

WORLD = ":"
"""The first character of a group of all ranks. Process groups of torch have other names."""
CHANNEL = ":p2p "
"""How the group of a point-to-point operation begins: `:p2p 1>0` is from rank 1 to rank 0."""
HOROVOD = ":horovod "
"""How the group of a tensor of Horovod begins."""
TENSORFLOW = ":tensorflow "
"""How the group of a function of TensorFlow begins."""
NCCL = " nccl"
"""How the group of a collective of NCCL ends. A process group with gloo as well has two records."""
_MOST_GROUPS = 4096
_MOST_TOLD = 128
_MOST_TENSORS = 4

_last: dict[str, Call] = {}
"""The last call of each group, the oldest first."""


class Call:
    """One call. It waits until it is `done`."""

    __slots__ = ("done", "group", "number", "operation", "root", "sizes", "started", "types", "work")

    def __init__(
        self, group: str, number: int, operation: str, tensors: Iterable[Any], root: int | None
    ) -> None:
        self.group, self.number, self.operation, self.root = group, number, operation, root
        shown = [tensor for tensor in tensors if hasattr(tensor, "dtype")][:_MOST_TENSORS]
        self.sizes = [tuple(tensor.shape) for tensor in shown]
        self.types = [tensor.dtype for tensor in shown]
        self.started = time.time()
        self.done = False
        self.work: weakref.ref[Any] | None = None
        """torch's handle of an operation that another thread carries out."""

    @property
    def waits_s(self) -> float | None:
        if self.done:
            return None
        if self.work is not None:
            work = self.work()
            if work is None or work.is_completed():
                return None
        return round(time.time() - self.started, 3)


def forget_all() -> None:
    """Count all calls from the start, because the next cell of a session begins on every rank."""
    _last.clear()


def channel(sender: int, receiver: int) -> str:
    """Return the group of the operations from one rank to another."""
    return f"{CHANNEL}{sender}>{receiver}"


def begin(group: str, operation: str, tensors: Iterable[Any] = (), root: int | None = None) -> Call:
    """Record a call. The caller sets `done` or `work`."""
    before = _last.pop(group, None)
    call = Call(group, 1 if before is None else before.number + 1, operation, tensors, root)
    _last[group] = call
    if len(_last) > _MOST_GROUPS:
        with contextlib.suppress(StopIteration, KeyError, RuntimeError):  # another thread records as well
            del _last[next(iter(_last))]
    return call


@contextlib.contextmanager
def waiting(group: str, operation: str) -> Iterator[None]:
    """Record a call that waits as long as the block runs. A call that fails has waited in vain."""
    call = begin(group, operation)
    yield
    call.done = True


def forget(prefix: str) -> None:
    """Forget the calls of the groups with this prefix. Their numbers begin at 1 again."""
    for group in [group for group in list(_last) if group.startswith(prefix)]:
        _last.pop(group, None)


def snapshot() -> list[list[Any]]:
    """Return the newest calls and all that wait, in the form of the event `collectives`."""
    calls = list(_last.values())
    found = []
    for place, call in enumerate(calls):
        waits_s = call.waits_s
        if waits_s is not None or place >= len(calls) - _MOST_TOLD:
            types = [str(kind).removeprefix("torch.") for kind in call.types]
            found.append([call.group, call.number, call.operation, call.sizes, types, waits_s, call.root])
    return found
