"""What the supervisor holds of its run, and how one attempt of it has ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..backends.interface import Capabilities
from ..folder import RunFolder
from ..job import Job, State
from ..record.file_changes import FileChanges
from .backend_calls import Caller
from .guard import Guard
from .log_index import LogIndexWriter
from .requests import Requests
from .status_writer import StatusWriter

__all__ = ["Outcome", "RunContext"]


@dataclass(frozen=True)
class RunContext:
    """What the supervisor holds of its run, for all attempts."""

    job: Job
    folder: RunFolder
    able: Capabilities
    caller: Caller
    writer: StatusWriter
    requests: Requests
    guard: Guard
    poll_interval_s: float
    grace_s: float
    """For how long calls are tried again that fail in a way that may pass."""
    changes: FileChanges = field(default_factory=FileChanges)
    """Of the files that ranks write."""

    def indexer(self, attempt: int) -> LogIndexWriter:
        # Of what --metric finds in logs there is no digest, and so none of such a run.
        return LogIndexWriter(self.folder, attempt, self.changes, digests=not self.job.metrics)


@dataclass(frozen=True)
class Outcome:
    """How an attempt has ended. UNWATCHED: nobody can tell whether it has."""

    state: State
    reason: str | None
    again: bool = True
    """Whether another attempt may be better."""
    detail: str | None = None
    """What the backend said of its end."""
