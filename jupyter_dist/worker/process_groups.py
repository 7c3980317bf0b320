"""Process groups of ranks: ended at once, and also when the process that watches over them has died."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys

from .boot import set_name

__all__ = ["guard_groups", "kill_group", "last_words", "peak_memory_bytes"]


def kill_group(pid: int) -> None:
    """SIGKILL to all of a group that is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def peak_memory_bytes(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def guard_groups(read: int) -> bool:
    """Be a guard: wait until the other end of a pipe is closed, then kill the groups named by its last line.

    False, and nothing is killed, when that line is the word `done`.
    """
    last = last_words(read)
    if last == "done":
        return False
    for pid in (last or "").split():
        kill_group(int(pid))
    return True


def last_words(read: int) -> str | None:
    """Be a guard: wait until the other end of a pipe is closed. The last line that came; None for none."""
    with contextlib.suppress(PermissionError):  # it was started in a session of its own
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
