"""What is the same for every host of a run, however hosts are reached."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HostSettings"]


@dataclass(frozen=True)
class HostSettings:
    """Where things lie on the hosts, and how long those go on that cannot be reached."""

    remote_dir: str = "~/.cache/jupyter-dist/hosts"
    grace_s: float = 300.0
    """How long an agent and its ranks go on without a driver, and a driver waits for an agent."""
    interface: str | None = None
    """The network interface by which hosts reach each other; None: the one that ssh comes in by, or the
    one that leads to the other hosts."""
    rsync: tuple[str, ...] = ()
    """Files and folders to copy to the stage folder's `work`, where hosts are reached by ssh."""
