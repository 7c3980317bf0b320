"""Process groups of ranks, and a guard that ends them if the process that watches them has died."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys

from .boot import set_name

__all__ = ["guard_groups", "kill_group", "last_words", "peak_memory_bytes"]


def kill_group(pid: int) -> None:
    """Send SIGKILL to every process of a group that still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def peak_memory_bytes(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def guard_groups(read: int) -> bool:
    """Wait until the other end of a pipe is closed, then kill the groups in its last line.

    The process acts as a guard.
    Returns False if the last line is the word `done`. Then nothing is killed.
    Blocks until the pipe is closed.
    """
    last = last_words(read)
    if last == "done":
        return False
    for pid in (last or "").split():
        kill_group(int(pid))
    return True


def last_words(read: int) -> str | None:
    """Wait until the other end of a pipe is closed. Return the last line, or None without a line.

    The process acts as a guard.
    """
    with contextlib.suppress(PermissionError):  # the process already has a session of its own
        os.setsid()
    set_name("jdist guard")
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    data = b""
    while chunk := os.read(read, 65536):
        data = (data + chunk)[-(1 << 20) :]
    lines = data.decode().splitlines()
    return lines[-1] if lines else None
