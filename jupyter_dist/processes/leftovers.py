"""Clean-up of the processes that a run has left on this machine, in any process group."""

from __future__ import annotations

import os

from ..worker import layout
from ..worker.process_groups import has_variable, kill_all
from ..worker.session import place

__all__ = ["end_leftovers", "is_of"]


def end_leftovers(*ids: str) -> list[int]:
    """Kill this user's processes of runs or sessions. Returns their pids; an empty list if there is no /proc.

    A process belongs to a run if its environment has the run's id, or if it prints into a rank's log.
    The log is needed because /proc shows the template's environment for a fork of a warm rank.
    The function finds processes that have left their rank's process group.
    Containers on this machine are hosts of their own: their agents clean them up.
    """
    try:
        here = _namespace("self")
    except OSError:
        return []
    return kill_all(lambda pid: is_of(pid, *ids) and _namespace(pid) == here)


def _namespace(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def is_of(pid: int, *ids: str) -> bool:
    """Return whether a process belongs to a run or a session. Raises OSError if that cannot be read."""
    if any(
        has_variable(pid, name, own) for name in ("JUPYTER_DIST_RUN_ID", place.ID_VARIABLE) for own in ids
    ):
        return True
    # A process that only reads a log has the log at another descriptor.
    logs = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (1, 2)]
    return any(f"/{own}/{layout.ATTEMPTS}/" in log for own in ids for log in logs)
