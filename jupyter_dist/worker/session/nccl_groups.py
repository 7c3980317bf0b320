"""The exit from a collective of NCCL that waits for a rank that will not arrive.

NCCL's kernel waits on the GPU. The rank waits for the kernel in C++ code, which hears no signal. If another
thread aborts the process group, the kernel ends and the code returns, with values that mean nothing. So the
signal must come first: Python raises its exception as soon as the code has returned.

By default torch connects the ranks in the first collective, and nothing can end the wait for a rank that does
not take part in that one. `dist.init()` of a session connects them at once.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

from .. import foreign_names

__all__ = ["bound", "gpu_error", "is_in_use", "leave", "watch"]


def watch() -> None:
    """Keep torch from ending this process because another rank has left a collective.

    The session's supervisor makes all ranks leave it. Without the dump, torch's watchdog does not wait some
    seconds before it lets another thread abort the group. Values that the user has set stay.
    https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
    """
    for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_DUMP_ON_TIMEOUT"):
        os.environ.setdefault(name, "0")


def bound(distributed: Any, device: Any) -> dict[str, Any]:
    """Return the option of `init_process_group` with which it connects the ranks at once.

    `distributed`: torch.distributed. Before torch 2.3 there is no such option.
    """
    known = inspect.signature(distributed.init_process_group).parameters
    return {"device_id": device} if "device_id" in known else {}


def is_in_use() -> bool:
    """Return whether this process has used a GPU through torch."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def gpu_error() -> str | None:
    """Return the first line of an error of the GPU that lasts until this process ends; None without one.

    An assertion in a kernel, for example, makes every later call fail.
    """
    if not is_in_use():
        return None
    try:
        sys.modules["torch"].cuda.current_stream().query()
    except Exception as error:
        return (str(error) or type(error).__name__).splitlines()[0]
    return None


def leave() -> None:
    """End the collectives of NCCL in this process. Another thread than theirs calls this. Blocks for 0.5 s.

    Several groups are aborted together, as torch does, because one can wait for another:
    https://github.com/pytorch/pytorch/issues/119797
    """
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if not is_in_use() or module is None or foreign_names.lost("worker/session/nccl_groups"):
        return
    names = dict(module._world.pg_names)
    groups = sorted(names, key=names.__getitem__, reverse=True)
    with _together(module.group.WORLD) if len(groups) > 1 else contextlib.nullcontext():
        for group in groups:
            with contextlib.suppress(Exception):  # torch 2.6 and some communicators have no abort
                group.abort()


@contextlib.contextmanager
def _together(world: Any) -> Iterator[None]:
    try:
        backend = world._get_backend(sys.modules["torch"].device("cuda"))
        backend._group_start()
    except Exception:  # the default group has another communicator
        yield
        return
    try:
        yield
    finally:
        backend._group_end()
