"""Settings that are the same for all hosts of a run, whatever their link is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HostSettings"]


@dataclass(frozen=True)
class HostSettings:
    """Paths on the hosts, and how long a host without a connection continues."""

    remote_dir: str = "~/.cache/jupyter-dist/hosts"
    grace_s: float = 300.0
    """How long an agent and its ranks continue without a driver, and how long a driver waits for an agent."""
    interface: str | None = None
    """The network interface for connections between hosts.

    None: the interface of the ssh connection, or else the one with a route to the other hosts.
    """
    rsync: tuple[str, ...] = ()
    """Files and folders to copy to `work` in the stage folder, if the link to the hosts is ssh."""
    other_python: bool | None = None
    """Whether hosts may have another version of Python; None: the backend has no option for it."""
