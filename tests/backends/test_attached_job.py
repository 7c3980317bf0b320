"""The backend that shows a job of somebody else: the job's end, and handles of earlier versions."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.attached_job import AttachedJob, JobEnd, JobStatus, lag_s
from jupyter_dist.errors import Unreachable
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, RankState, State
from tests.rigs.run_maker import RunMaker

HANDLES = [{}, {"ranks": 2, "job": "theirs"}]
"""The second one is of a version that repeated the job in the handle."""


class _Client:
    """A job whose status the test sets."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status
        self.cursor = {"read": 7}

    def look(self) -> JobStatus:
        return self.status

    def close(self) -> str | None:
        return "billed 0 s"


@pytest.mark.parametrize("handle", HANDLES)
def test_an_ended_job_waits_for_the_rest_of_its_output(tmp_path: Path, handle: dict[str, Any]) -> None:
    made = RunMaker(tmp_path, options={"job": "theirs"})
    job, folder = made.job, made.folder
    client = _Client(JobStatus(State.RUNNING, RankState.all(2, State.RUNNING), "runs"))
    cursors, ended = list[Any](), list[Any]()
    away = [Unreachable("it does not answer")]

    def connect(job: Job, folder: RunFolder, cursor: Any) -> _Client:
        cursors.append(cursor)
        if away:
            raise away.pop()
        return client

    backend = AttachedJob(connect, ended.append)
    assert backend.release(job, folder, handle) is None
    poll = backend.poll(job, folder, handle, {"read": 3})
    assert (poll.state, poll.detail, poll.cursor) == (State.PENDING, "it does not answer", {"read": 3})
    poll = backend.poll(job, folder, handle, {"read": 3})
    assert (poll.state, poll.detail, poll.cursor) == (State.RUNNING, "runs", {"read": 7})
    assert cursors == [{"read": 3}] * 2
    ranks = (RankState(0, State.FAILED, ended=2.0), RankState(1, State.RUNNING))
    for rest_s, state in ((math.inf, State.RUNNING), (0.0, State.FAILED)):
        client.status = JobStatus(State.RUNNING, ranks, "runs", JobEnd(State.FAILED, "it broke", 5.0, rest_s))
        poll = backend.poll(job, folder, handle, None)
        assert poll.state is state
    assert poll.final
    assert poll.detail == "it broke"
    assert [(rank.state, rank.ended) for rank in poll.ranks] == [(State.FAILED, 2.0), (State.STOPPED, 5.0)]
    backend.stop(job, folder, handle, kill=False)
    assert ended == [{"job": "theirs"}]
    assert backend.release(job, folder, handle) == "billed 0 s"


def test_what_a_job_prints_last_may_come_after_its_end() -> None:
    assert lag_s(time.time()) == lag_s(None) > 0
    assert lag_s(time.time() - 60) == 0
