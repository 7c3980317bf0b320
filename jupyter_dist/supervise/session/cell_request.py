"""A cell that a kernel has sent to its session, and what the ranks do before they run it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...folder import RunFolder
from ...job import Job

__all__ = ["Preparation", "Request"]


@dataclass(frozen=True)
class Request:
    """A cell that a kernel has sent."""

    folder: RunFolder
    job: Job
    sent: Mapping[str, str]
    """Digests of the names in its payload."""
    together: tuple[tuple[str, ...], ...]
    """Groups of names in its payload that share objects. They are replaced together or not at all."""
    needs: frozenset[str]
    """Names of the notebook that its code uses and its payload lacks, because the ranks had their values."""
    environ: Mapping[str, tuple[str, str | None]]
    """Variables that the notebook has set, with the values at the session's start (`NotebookProcess`)."""
    ranks: tuple[int, ...]
    restart: str = "rank"

    @classmethod
    def of(cls, folder: RunFolder, job: Job, session: Job, message: Mapping[str, Any]) -> Request:
        """Return the request in a kernel's message. `session`: the job of the session's first cell."""
        assert job.session is not None
        chosen = job.session.get("ranks")
        return cls(
            folder,
            job,
            sent={str(name): str(value) for name, value in message.get("sent", {}).items()},
            together=tuple(tuple(map(str, group)) for group in message.get("together", ())),
            needs=frozenset(message.get("needs", ())),
            environ={
                name: (value, os.environ.get(name))
                for name, value in message.get("environ", {}).items()
                if name not in session.env_names  # --env has set it for the ranks
            },
            ranks=tuple(range(session.world_size)) if chosen is None else tuple(chosen),
            restart=job.session.get("restart", "rank"),
        )


@dataclass(frozen=True)
class Preparation:
    """What the ranks do before a cell."""

    env: Mapping[str, str]
    reopen: str | None = None
    """The communicator of the process group that the ranks open."""
    notes: tuple[str, ...] = ()
    fresh: tuple[int, ...] = ()
    """Ranks whose process replaces one that has ended. They call the functions of `on_start`."""
    on_start: tuple[str, ...] = ()
