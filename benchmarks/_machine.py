"""What the numbers were measured on."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

__all__ = ["describe", "load"]


def load() -> float:
    """How many processes want a core, averaged over the last minute."""
    return os.getloadavg()[0]


def describe(packages: Sequence[str], load_before: float) -> str:
    """One line: date, cores, memory, load before the benchmark, versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"Python {platform.python_version()}", *(_version(name) for name in packages)]
    today = datetime.date.today().isoformat()
    return (
        f"{today}, {_processor()}, {cores} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"load {load_before:.1f} before the first round. {', '.join(versions)}."
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
