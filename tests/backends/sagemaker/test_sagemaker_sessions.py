"""A session on SageMaker is one training job: what its end says, and what the end of the job does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.conformance.kept_ranks import KeptSession
from jupyter_dist.conformance.run_control import Runs
from jupyter_dist.record.sessions import find_session, take_end
from tests.rigs.sagemaker import SageMakerPlane
from tests.rigs.sagemaker.fixtures import kept_plane, plane, runs, signed_in  # noqa: F401

pytestmark = [
    pytest.mark.needs("boto3", "moto"),
    pytest.mark.xdist_group("sagemaker"),  # they share its hosts
]


@pytest.fixture
def session(runs: Runs) -> Iterator[KeptSession]:
    with runs.here():
        session = KeptSession(runs)
        yield session
        session.close()
        runs.gone(*session.ranks)


def _id(session: KeptSession) -> str:
    found = find_session(session.name)
    assert found is not None
    return str(found.about["id"])


def test_it_starts_when_the_service_answers_again_and_its_end_says_what_it_cost(
    plane: SageMakerPlane, session: KeptSession
) -> None:
    plane.fail("CreateTrainingJob", 503, "ServiceUnavailable", times=8)  # more than the SDK's own retries
    assert session.results("import os\nrank = int(os.environ['RANK'])\nrank") == [0, 1]
    assert sum("CreateTrainingJob" in request for request in plane.requests) > 8
    own = _id(session)
    assert [name for name in plane.names() if f"/{own}/" in name], "the session's mailbox in S3"
    told = str(dispatch(f"close {session.name}", Context()))
    assert f"closed the session {session.name} with 2 ranks" in told
    assert f"job jupyter-dist-{own}-0: " in told
    assert "billed" in told
    assert plane.jobs[f"jupyter-dist-{own}-0"].status == "Completed"
    assert not [name for name in plane.names() if f"/{own}/" in name]


def test_it_ends_with_a_job_that_is_stopped_on_its_page(
    plane: SageMakerPlane,
    session: KeptSession,
    wait_for: Callable[..., Any],
) -> None:
    assert session.results("held = 1\nheld") == [1, 1]
    job = f"jupyter-dist-{_id(session)}-0"
    plane.stop(job)
    wait_for(lambda: find_session(session.name) is None, what="the session to end")
    ended = take_end(session.name)
    assert ended is not None
    assert f"job {job} was stopped" in ended[1]
