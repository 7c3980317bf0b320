"""What a run on a platform makes of the state of its job."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jupyter_dist.backends.job_watch import JobView
from jupyter_dist.backends.platform_job import PlatformJob
from jupyter_dist.job import Poll, State


def _shown(polled: State, seen: JobView) -> Poll:
    backend = PlatformJob(JobView, "job", lambda *_: pytest.fail("no client is needed"))
    backend._watch = SimpleNamespace(seen=seen)  # type: ignore[assignment]
    return backend._as_seen(Poll(polled, ()))


@pytest.mark.parametrize("polled", [State.PENDING, State.FAILED])
def test_a_job_that_somebody_has_stopped_is_not_started_again(polled: State) -> None:
    """Also if it was stopped on its page while it waited for its machines."""
    view = JobView(called="job j", page="p", waits_for="waits", ended="job j was stopped", stopped=True)
    poll = _shown(polled, view)
    assert poll.state is State.STOPPED
    assert poll.final


@pytest.mark.parametrize("final", [False, True])
def test_a_job_that_has_failed_before_its_hosts_ran(final: bool) -> None:
    view = JobView(called="job j", page="p", waits_for="waits", ended="job j has failed", final=final)
    poll = _shown(State.PENDING, view)
    assert (poll.state, poll.final, poll.detail) == (State.FAILED, final, "job j has failed")
