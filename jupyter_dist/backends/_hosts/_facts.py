"""What is known of a host, and of a process on it."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["HostFacts", "HostProcess"]


@dataclass(frozen=True)
class HostFacts:
    """What a host's agent tells of it, and what the driver found out."""

    name: str
    """As the user calls it."""
    node: int
    slots: int
    hostname: str
    """As it calls itself."""
    address: str | None
    """As other hosts see it; None for this machine."""
    client: str | None
    """The address of the machine that ssh came from: this one's, as that host sees it."""
    interface: str | None
    """The network interface that has the address."""
    python: str
    version: str
    cores: int
    gpus: tuple[str, ...]
    stage: str
    """The folder that is the run's there; `run` in it is laid out as the run's folder here."""
    home: str
    free_disk: int
    clock_offset_s: float = 0.0
    """What to add to its clock to have this machine's."""

    @property
    def start(self) -> str:
        """A script that starts a rank there, or the argv it is given, once `Fleet.prepare` was called."""
        return os.path.join(os.path.dirname(self.stage), "start")


@dataclass(frozen=True)
class HostProcess:
    """A process on a host: a rank, or a launcher (`rank` None). Times are in this machine's clock."""

    id: str
    host: str
    rank: int | None
    attempt: int
    pid: int | None = None
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    peak_memory_bytes: int | None = None
    told: bool = False
    """Whether it was told to end before it ended."""
    free_disk: int | None = None
    """Bytes that were free in its stage folder when it had ended."""
    error: str | None = None
    """Why it could not be started."""
    lost: str | None = None
    """Why nothing more will be heard of it."""

    @property
    def over(self) -> bool:
        return self.ended is not None
