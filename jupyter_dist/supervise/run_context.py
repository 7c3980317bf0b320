"""State of one supervised run, and the outcome of one of its attempts."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from ..backends.interface import Capabilities
from ..folder import RunFolder, make_attempt
from ..job import Job, State
from ..record.file_changes import FileChanges
from .backend_calls import Caller
from .guard import Guard
from .log_index import LogIndexWriter
from .requests import Requests
from .status_writer import StatusWriter
from .termination import Grace

__all__ = ["Outcome", "RunContext"]


@dataclass(frozen=True)
class RunContext:
    """State of one supervised run, shared by its attempts."""

    job: Job
    folder: RunFolder
    able: Capabilities
    caller: Caller
    writer: StatusWriter
    requests: Requests
    guard: Guard
    poll_interval_s: float
    grace_s: float
    """How long the supervisor retries calls with temporary failures."""
    ends_at_once: bool = False
    """Whether the final state is written right after the ranks' end, because nothing has to be released."""
    changes: FileChanges = field(default_factory=FileChanges)
    """Change events of the files that ranks write."""

    def make_attempt(self, attempt: int) -> None:
        """Make the folders of an attempt that a launcher has begun. If that fails, its ranks say why."""
        with contextlib.suppress(OSError):
            make_attempt(self.folder, attempt, self.job.world_size)

    def grace(self, attempt: int, *, running: bool) -> Grace:
        return Grace(self.job, self.able, self.folder, attempt, running=running)

    def indexer(self, attempt: int) -> LogIndexWriter:
        # The digest cannot contain metrics that --metric finds in logs, so such a run has no digest.
        return LogIndexWriter(self.folder, attempt, self.changes, digests=not self.job.metrics)


@dataclass(frozen=True)
class Outcome:
    """Outcome of an attempt. UNWATCHED: the supervisor cannot find out whether the ranks have ended."""

    state: State
    reason: str | None
    again: bool = True
    """Whether another attempt may succeed."""
    detail: str | None = None
    """The backend's text about the attempt's end."""
