"""The exit from a collective of gloo that waits for a rank that will not arrive.

A rank inside such a collective runs C++ code, which hears no signal, and `abort()` does nothing on gloo. If
another thread shuts the sockets of gloo down, the collective raises at once. The process group cannot be used
afterwards. The sockets are those that were opened while torch opened a process group, except those of the
store, which torch connects to MASTER_PORT.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import foreign_names
from ..import_hooks import call
from ..patching import wrap_copies
from ..rank import collectives
from . import nccl_groups

__all__ = ["close_group", "communicator", "leave", "watch"]

_sockets: dict[int, str] = {}
"""The sockets of gloo: descriptor → what the descriptor refers to."""


def watch() -> None:
    """Note gloo's sockets from now on, when torch opens a process group."""
    call("torch.distributed.distributed_c10d", _patch)


def _patch() -> None:
    module = sys.modules["torch.distributed.distributed_c10d"]
    for name in ("init_process_group", "new_group"):
        _wrap(module, name)


def _wrap(module: ModuleType, name: str) -> None:
    wrap_copies(module, name, _noted)


def _noted(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def opening(*args: Any, **options: Any) -> Any:
        before = _open_sockets()
        try:
            return original(*args, **options)
        finally:
            ports = {os.environ.get("MASTER_PORT", "")}
            for fd, target in _open_sockets().items():
                if before.get(fd) != target and not _ports(fd) & ports:
                    _sockets[fd] = target

    return opening


def _open_sockets() -> dict[int, str]:
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/self/fd/{name}")
                if target.startswith("socket:"):
                    found[int(name)] = target
    return found


def _ports(fd: int) -> set[str]:
    found: set[str] = set()
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as sock:
        if sock.family not in (socket.AF_INET, socket.AF_INET6):
            return found
        for address in (sock.getsockname, sock.getpeername):
            with contextlib.suppress(OSError):
                found.add(str(address()[1]))
    return found


def leave() -> None:
    """Make every collective of gloo in this process raise. Another thread than theirs calls this."""
    for fd, target in list(_sockets.items()):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}") == target:
                with socket.socket(fileno=os.dup(fd)) as sock:
                    # gloo aborts the process if its listening socket is shut down.
                    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        sock.shutdown(socket.SHUT_RDWR)


def _count_anew() -> None:
    """Let the next process group have the same name here as on ranks whose group was open.

    Its name is a number. torch has also counted a group that did not open, and ranks with different names
    would wait for each other.
    """
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is not None and not foreign_names.lost("worker/session/gloo_sockets"):
        module._world.group_count = 0


def communicator() -> str | None:
    """Return the communicator of this process's default process group; None if no group is open."""
    group = sys.modules.get("torch.distributed")
    if group is None or not group.is_available() or not group.is_initialized():
        return None
    return str(group.get_backend())


def close_group() -> str | None:
    """Close all process groups of torch. Returns the communicator of the group; None if none was open."""
    found = communicator()
    if found is None:
        _count_anew()
    else:
        leave()
        with contextlib.suppress(Exception):  # the rank must not end: it has the names
            nccl_groups.leave()
        with contextlib.suppress(Exception):  # the other ranks may be gone
            sys.modules["torch.distributed"].destroy_process_group()
        _sockets.clear()
        collectives.forget()
    return found
