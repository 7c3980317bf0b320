"""Clean-up of the processes that a run has left on this machine, in any process group."""

from __future__ import annotations

import os

from ..worker import layout
from ..worker.process_groups import has_variable, kill_all

__all__ = ["end_leftovers", "is_of"]


def end_leftovers(run_id: str) -> list[int]:
    """Kill this user's processes of a run. Returns their pids; an empty list if there is no /proc.

    A process belongs to the run if its environment has the run's id, or if it prints into a rank's log.
    The log is needed because /proc shows the template's environment for a fork of a warm rank.
    The function finds processes that have left their rank's process group.
    Containers on this machine are hosts of their own: their agents clean them up.
    """
    try:
        here = _namespace("self")
    except OSError:
        return []
    return kill_all(lambda pid: is_of(pid, run_id) and _namespace(pid) == here)


def _namespace(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def is_of(pid: int, run_id: str) -> bool:
    """Return whether a process belongs to the run. Raises OSError if that cannot be read."""
    if has_variable(pid, "JUPYTER_DIST_RUN_ID", run_id):
        return True
    # A process that only reads a log has the log at another descriptor.
    return any(f"/{run_id}/{layout.ATTEMPTS}/" in os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (1, 2))
