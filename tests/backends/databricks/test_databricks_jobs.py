"""What the states of a job run mean, without a workspace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.backends.databricks.jobs import JobRun, see

pytestmark = pytest.mark.needs("databricks.sdk")


def _seen(life: str, result: str | None = None, code: str | None = None) -> JobRun:
    from databricks.sdk.service.jobs import Run

    told: dict[str, Any] = {"run_id": 7, "state": {"life_cycle_state": life, "result_state": result}}
    if code is not None:
        told["status"] = {"termination_details": {"code": code}}
    jobs = SimpleNamespace(get_run=lambda _: Run.from_dict(told))
    return see(SimpleNamespace(jobs=jobs), 7)


def test_a_run_that_somebody_has_cancelled_is_told_from_one_that_has_failed() -> None:
    """The first is not followed by another job run, with a cluster of its own."""
    assert _seen("TERMINATED", "CANCELED", "USER_CANCELED").stopped
    assert _seen("TERMINATED", "CANCELED").stopped
    assert not _seen("TERMINATED", "CANCELED", "CANCELED").stopped, "the platform has cancelled it"
    assert not _seen("TERMINATED", "FAILED", "RUN_EXECUTION_ERROR").stopped
    assert not _seen("RUNNING").stopped
