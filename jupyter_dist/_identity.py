"""Tell a process from another one that got its pid later, or has it after a reboot."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["boot_id", "start_ticks"]


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the boot; None when it is gone or a zombie.

    0 where there is no /proc: then only the pid is known."""
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
