"""Identity of a run's supervisor process. Another process may have its pid later."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from ..job import Status

__all__ = ["SILENCE_S", "boot_id", "start_ticks", "supervised"]

SILENCE_S = 30.0
"""If its heartbeat is older than this, a supervisor on another host counts as dead."""


def boot_id() -> str:
    """Return an id that differs between boots of this machine. Empty if there is no /proc."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Return a process's start time in clock ticks since the boot. None if the process is gone or a zombie.

    Without /proc the result is 0 for any existing process, because only its pid is known.
    In /proc/PID/stat, the 3rd field is the state and the 22nd the start time:
    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
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
    """Return whether the supervisor that wrote this status lives."""
    supervisor = status.supervisor
    if supervisor is None:
        return False
    if supervisor.host != socket.gethostname():
        return time.time() - status.heartbeat < SILENCE_S
    if supervisor.boot_id != boot_id():
        return False
    return start_ticks(supervisor.pid) == supervisor.start_ticks
