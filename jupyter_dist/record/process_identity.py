"""Whether a run's supervisor lives, and not another process that got its pid later or after a reboot."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from ..job import Status

__all__ = ["boot_id", "start_ticks", "supervised"]

_SILENCE_S = 30.0
"""A supervisor on another host is taken for dead when its heartbeat is older than that."""


def boot_id() -> str:
    """What tells one boot of this machine from another; empty where there is no /proc."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None when it is gone or a zombie.

    0 where there is no /proc: then only the pid is known. Of /proc/PID/stat the 3rd field is the state,
    the 22nd the start: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        if os.path.isdir("/proc/self"):
            return None
        try:
            os.kill(pid, 0)
        except OSError:
            return None
        return 0
    state, *fields = stat[stat.rindex(b")") + 2 :].split()
    return None if state in (b"Z", b"X") else int(fields[18])


def supervised(status: Status) -> bool:
    """Whether the supervisor that wrote this status lives."""
    supervisor = status.supervisor
    if supervisor is None:
        return False
    if supervisor.host != socket.gethostname():
        return time.time() - status.heartbeat < _SILENCE_S
    if supervisor.boot_id != boot_id():
        return False
    return start_ticks(supervisor.pid) == supervisor.start_ticks
