"""What the numbers were measured on."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

__all__ = ["describe", "wait_until_idle"]


def wait_until_idle(limit_s: float) -> bool:
    """Wait until the cores have had nothing to do for a moment; false when that took too long."""
    deadline = time.monotonic() + limit_s
    while True:
        busy, total = _ticks()
        time.sleep(0.3)
        busy_now, total_now = _ticks()
        if busy_now - busy <= 0.1 * (total_now - total):
            return True
        if time.monotonic() > deadline:
            return False


def _ticks() -> tuple[int, int]:
    """How long all cores together were busy, and how long they have been there, in clock ticks."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 1  # not told here
    return sum(fields) - fields[3] - fields[4], sum(fields)


def describe(packages: Sequence[str]) -> str:
    """One line: date, cores, memory, versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"Python {platform.python_version()}", *(_version(name) for name in packages)]
    today = datetime.date.today().isoformat()
    return (
        f"{today}, {_processor()}, {cores} cores, {memory:.0f} GiB, Linux {platform.release()}. "
        f"{', '.join(versions)}."
    )


def _version(name: str) -> str:
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"{name} (not installed)"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
