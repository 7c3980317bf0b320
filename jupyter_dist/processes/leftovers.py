"""End what a run has left behind on this machine, wherever it went."""

from __future__ import annotations

import contextlib
import os
import signal

from ..worker import layout

__all__ = ["end_leftovers"]


def end_leftovers(run_id: str) -> list[int]:
    """Kill every process of ours that was started with this run's id in its environment, or prints into the
    log of one of its ranks: a fork of a warm rank has the environment that the template was started with.

    Finds what left its rank's process group. Containers on this machine are hosts of their own, which
    their agents look after. Returns the pids it killed; empty without /proc.
    """
    killed: list[int] = []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        here = os.readlink("/proc/self/ns/pid")
    except OSError:
        return killed
    for pid in pids:
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if _is_of(pid, run_id) and os.readlink(f"/proc/{pid}/ns/pid") == here:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
    return killed


def _is_of(pid: int, run_id: str) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        if f"JUPYTER_DIST_RUN_ID={run_id}".encode() in file.read().split(b"\0"):
            return True
    # Who only reads a log has it elsewhere.
    return any(f"/{run_id}/{layout.ATTEMPTS}/" in os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (1, 2))
