"""One attempt of a run that `RunMaker` has made, with a backend of the test's own, turn by turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from jupyter_dist.backends.interface import Backend, Capabilities
from jupyter_dist.job import RankState, State, Status
from jupyter_dist.supervise.attempt import Attempt
from jupyter_dist.supervise.backend_calls import InProcess
from jupyter_dist.supervise.guard import Guard
from jupyter_dist.supervise.requests import Requests
from jupyter_dist.supervise.run_context import RunContext
from jupyter_dist.supervise.status_writer import StatusWriter
from tests.rigs.run_maker import RunMaker

__all__ = ["attempt_of"]


class NoGuard:
    def watch(self, pids: Iterable[int]) -> None:
        pass


def attempt_of(made: RunMaker, backend: Any) -> Attempt:
    """Its first attempt, before anything was submitted. The test calls `tick`."""
    able, job, folder = Capabilities(), made.job, made.folder
    folder.supervisor_log.touch()  # as the supervisor of each run does: its clock is the one of files
    status = Status(
        job.id,
        State.PENDING,
        created=job.created,
        supervisor=made.status.supervisor,
        ranks=RankState.all(job.world_size),
    )
    context = RunContext(
        job=job,
        folder=folder,
        able=able,
        caller=InProcess(cast(Backend, backend), job, folder),
        writer=StatusWriter(folder, status),
        requests=Requests(folder, job),
        guard=cast(Guard, NoGuard()),
        poll_interval_s=0.05,
        grace_s=60,
    )
    return Attempt(context, None)
