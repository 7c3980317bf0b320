"""The last collectives of this rank, from torch's flight recorder. A failed run's card compares the ranks.

torch 2.13 records the collectives of every backend by default. A rank writes its last ones as an event when
its cell ends, and when somebody asks for its stacks. The event has the kind `collectives`:

    groups   name → the global ranks of the process group
    calls    [group, number, operation, sizes, types, waits_s] each. The number counts the collectives of the
             group; sizes and types are those of the input tensors; waits_s is how long the rank has waited
             for the others, or null if the collective is done
    final    whether the cell has ended
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import boot, foreign_names
from ..output import events
from ..patching import wrap

__all__ = ["patch", "write"]

_SIZE = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_RECORDED = "128"
"""Collectives that torch keeps, unless the user has set a number. 128 are written in 3 ms, 2,000 in 75 ms."""
_MOST_SIZES = 4
_LOOK_EVERY_S = 0.1
_recording: int | None = None
"""The process that records: a fork of the rank does not write."""


def patch(module: ModuleType) -> None:
    """Begin to record when the rank opens its process group. `module`: torch.distributed.distributed_c10d."""
    if foreign_names.lost("worker/rank/collectives"):
        return
    original = module.init_process_group
    wrap(module, "init_process_group", _recorded)
    package = sys.modules.get("torch.distributed")
    if getattr(package, "init_process_group", None) is original:  # the package has copied it already
        package.init_process_group = module.init_process_group  # type: ignore[union-attr]


def _recorded(original: Callable[..., Any]) -> Callable[..., Any]:
    def init_process_group(*args: Any, **options: Any) -> Any:
        _begin()
        return original(*args, **options)

    return init_process_group


def _begin() -> None:
    global _recording
    if _recording == os.getpid() or events.writer() is None:
        return
    _recording = os.getpid()
    if not any(name in os.environ for name in _SIZE):
        os.environ[_SIZE[0]] = _RECORDED
    threading.Thread(target=_answer, name="jupyter-dist-collectives", daemon=True).start()


def _answer() -> None:
    """Write the collectives whenever the rank was asked for its stacks."""
    seen = boot.stacks_size()
    while True:
        time.sleep(_LOOK_EVERY_S)
        size = boot.stacks_size()
        if size != seen:
            seen = size
            write()


def write(*, final: bool = False) -> None:
    """Write the last collectives of this rank as an event. Does nothing if the rank has no process group.

    `final`: the cell has ended, so the rank calls no others.
    """
    writer = events.writer()
    if writer is None or _recording != os.getpid():
        return
    with contextlib.suppress(Exception):  # the record only explains a failure
        from torch._C import _distributed_c10d

        found = json.loads(_distributed_c10d._dump_fr_trace_json())["entries"]  # type: ignore[attr-defined]
        calls = [_call(entry) for entry in found if not entry["is_p2p"]]
        writer.event(events.COLLECTIVES, {"groups": _groups(), "calls": calls, "final": final})


def _call(entry: dict[str, Any]) -> list[Any]:
    operation = str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"])
    sizes, types = entry["input_sizes"][:_MOST_SIZES], entry["input_dtypes"][:_MOST_SIZES]
    done = bool(entry["retired"]) or entry["state"] == "completed"
    waits_s = None if done else round(time.time() - entry["time_created_ns"] / 1e9, 3)
    return [entry["process_group"][0], entry["collective_seq_id"], operation, sizes, types, waits_s]


def _groups() -> dict[str, list[int]]:
    """Return the ranks of each process group, as far as this rank knows them."""
    import torch.distributed as dist

    world = sys.modules["torch.distributed.distributed_c10d"]._world
    return {name: dist.get_process_group_ranks(group) for group, name in list(world.pg_names.items())}
