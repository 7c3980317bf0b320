"""Default environment variables of ranks with any launcher. The user's own values override them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["cores", "crowded", "defaults", "loopback", "plotting"]


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def crowded(world_size: int) -> list[str]:
    """Return a warning if there are more workers than cores."""
    if world_size <= cores():
        return []
    return [f"{world_size} workers share {cores()} CPU cores: each will run slower than alone."]


def defaults(per_host: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ranks. `per_host` of them share this machine.

    Pure but for the number of cores.
    """
    threads = {} if "OMP_NUM_THREADS" in environ else {"OMP_NUM_THREADS": str(max(1, cores() // per_host))}
    return {**threads, **plotting(environ)}


def plotting(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that replaces the notebook's matplotlib backend, which draws into a notebook."""
    inline = environ.get("MPLBACKEND", "").startswith("module://matplotlib_inline")
    return {"MPLBACKEND": "Agg"} if inline else {}


def loopback(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for ranks on one machine.

    Without them, gloo resolves this host's name, which has many addresses on laptops.
    """
    wanted = sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in environ
    return {"GLOO_SOCKET_IFNAME": "lo"} if wanted else {}
