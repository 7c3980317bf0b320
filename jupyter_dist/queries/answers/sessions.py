"""What the server answers about sessions."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["SessionInfo", "SessionName", "SessionRank"]


class SessionRank(TypedDict):
    """A rank that stays between cells."""

    rank: int
    pid: int | None
    state: str
    """One of the values of `job.State`."""
    memory_bytes: int | None
    """What its process has in memory, without what it shares with other processes."""
    gpu_memory_bytes: int | None
    """What torch had reserved on its GPUs after its last cell; null if it used none."""


class SessionInfo(TypedDict):
    """Ranks that stay between cells. Times are by the clock of `host_time`."""

    name: str
    backend: str
    world_size: int
    host: str
    here: bool
    """Whether the session runs on the server's machine, which alone can act on it."""
    notebook: str | None
    created: float
    idle_since: float | None
    """null while a cell runs."""
    idle_timeout_s: float | None
    run: str | None
    """The run of the cell that runs in it."""
    queued: int
    """How many cells wait."""
    ranks: list[SessionRank]
    """The first 64."""
    names: dict[str, str]
    """The names of rank 0 with types and sizes: 100 at most."""
    host_time: float


class SessionName(TypedDict):
    """The session that was changed."""

    name: str
