"""Identity of a process. Its pid is not enough, because another process may have the pid later."""

from __future__ import annotations

import functools
import os

__all__ = ["boot_id", "start_ticks"]


@functools.cache
def boot_id() -> str:
    """Return an id that differs between boots of this machine. Empty if there is no /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Return a process's start time in clock ticks since the boot. None if the process is gone or a zombie.

    Without /proc the result is 0 for any existing process, because only its pid is known.
    In /proc/PID/stat, the 3rd field is the state and the 22nd the start time:
    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            stat = file.read(4096)
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
