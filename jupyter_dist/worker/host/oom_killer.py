"""The kernel's out-of-memory killer."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["oom_kills"]


def oom_kills() -> int:
    """Return how often the kernel's out-of-memory killer has run here; 0 if the kernel does not report it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
