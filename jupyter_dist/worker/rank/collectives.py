"""The last collectives of this rank. A failed run's card compares the ranks.

torch records the collectives of every backend by default, in its flight recorders. `calls` has what torch
does not record. A rank writes its last ones as an event when its cell ends, and when somebody asks for its
stacks. The event has the kind `collectives`:

    groups   name → the global ranks of the process group
    calls    [group, number, operation, sizes, types, waits_s, root] each. The number counts the collectives
             of the group; sizes and types are those of the input tensors; waits_s is how long the rank has
             waited for the others, or null if the collective is done; root may be missing
    final    whether the cell has ended
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import foreign_names, stacks_file
from ..output import events
from ..patching import wrap_copies
from . import calls, point_to_point

__all__ = ["begin", "forget", "patch", "write"]

_SIZE = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_RECORDED = "128"
"""Collectives that torch keeps, unless the user has set a number. 128 are written in 3 ms, 2,000 in 75 ms."""
_MOST_SIZES = 4
_DEFAULT = "default_pg"
_recording: int | None = None
"""The process that records: a fork of the rank does not write."""
_writing = threading.Lock()
_last_writer: Any = None
"""The writer of the events of the last cell that has ended."""
_own = 0
"""How many calls at the beginning of the default group are not the cell's."""
_since_ns = 0
"""When the present process group was opened, at the earliest: calls of an earlier group wait for nobody."""


def patch(module: ModuleType) -> None:
    """Begin to record when the rank opens its process group. `module`: torch.distributed.distributed_c10d."""
    wrap_copies(module, "init_process_group", _recorded)
    point_to_point.patch(module)


def _recorded(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def init_process_group(*args: Any, **options: Any) -> Any:
        begin()
        size = os.environ.get("WORLD_SIZE", "?")
        with contextlib.suppress(TypeError, ValueError):  # torch says what is wrong with the arguments
            given = int(signature.bind(*args, **options).arguments.get("world_size", -1))
            size = str(given) if given > 0 else size
        with calls.waiting(f"{calls.WORLD}init", f"init_process_group of {size} ranks"):
            return original(*args, **options)

    return init_process_group


def begin() -> None:
    """Answer requests for the stacks with the collectives from now on. Repeatable."""
    global _recording
    if _recording == os.getpid() or events.writer() is None:
        return
    _recording = os.getpid()
    if not any(name in os.environ for name in _SIZE):
        os.environ[_SIZE[0]] = _RECORDED
    stacks_file.on_request(write)


def forget(own: int = 0) -> None:
    """Leave out the calls until now, because their process group was closed.

    `own`: how many calls of the default group are not the cell's. They are not counted.
    """
    global _own, _since_ns
    _own, _since_ns = own, time.time_ns()


def write(*, final: bool = False) -> None:
    """Write the last collectives of this rank as an event. Does nothing if the rank has called none.

    `final`: the cell has ended, so the rank calls no others. Later requests for its stacks find nothing: a
    session's rank closes its groups then.
    """
    global _last_writer
    writer = events.writer()
    if writer is None or _recording != os.getpid():
        return
    # The record only explains a failure.
    with contextlib.suppress(Exception), _writing:
        if final:
            _last_writer = writer
        elif writer is _last_writer:
            return
        told = [*_of_torch(), *calls.snapshot()]
        writer.event(events.COLLECTIVES, {"groups": _groups(), "calls": told, "final": final})


def _of_torch() -> list[list[Any]]:
    """Return the calls in torch's flight recorders: NCCL has one of its own."""
    if "torch.distributed" not in sys.modules or foreign_names.lost("worker/rank/collectives"):
        return []
    from torch._C import _distributed_c10d

    found = []
    for dump, ending in (("_dump_fr_trace_json", ""), ("_dump_nccl_trace_json", calls.NCCL)):
        if not hasattr(_distributed_c10d, dump):
            continue  # the CPU build has no NCCL
        entries = json.loads(getattr(_distributed_c10d, dump)()).get("entries", ())
        present = [entry for entry in entries if entry["time_created_ns"] >= _since_ns]
        found += [_call(entry, ending) for entry in present if not entry["is_p2p"]]
    return found


def _call(entry: dict[str, Any], ending: str) -> list[Any]:
    operation = str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"])
    sizes, types = entry["input_sizes"][:_MOST_SIZES], entry["input_dtypes"][:_MOST_SIZES]
    if operation == "all_reduce_barrier":  # a barrier of NCCL sends a number
        operation, sizes, types = "barrier", [], []
    done = bool(entry["retired"]) or entry["state"] == "completed"
    waits_s = None if done else round(time.time() - entry["time_created_ns"] / 1e9, 3)
    root = None if done else point_to_point.root_of(operation)
    group = entry["process_group"][0] + ending
    number = entry["collective_seq_id"] - (_own if entry["process_group"][1] == _DEFAULT else 0)
    return [group, number, operation, sizes, types, waits_s, root]


def _groups() -> dict[str, list[int]]:
    """Return the ranks of each process group, as far as this rank knows them."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or foreign_names.lost("worker/rank/collectives"):
        return {}
    named = list(module._world.pg_names.items())
    return {name: module.get_process_group_ranks(group) for group, name in named}
