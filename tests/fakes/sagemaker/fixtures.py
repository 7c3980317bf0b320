"""Fixtures of tests whose runs are training jobs: `plane`, `signed_in`, `runs`; and words for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance import Target
from jupyter_dist.conformance.runs import Runs
from jupyter_dist.showing import run as showing

from .job import Job
from .plane import SageMakerPlane

__all__ = ["GIVEN", "job_of", "plane", "runs", "signed_in", "until"]

GIVEN = {
    "role": SageMakerPlane.role,
    "instance_type": "ml.c5.xlarge",
    "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/my-pytorch-training:1",
}
"""Flags of a run."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SageMakerPlane]:
    with SageMakerPlane(tmp_path_factory.mktemp("sagemaker")) as made:
        yield made


@pytest.fixture(autouse=True)
def signed_in(plane: SageMakerPlane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plane.heal()
    plane.requests.clear()
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name, value in plane.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def runs(plane: SageMakerPlane, tmp_path: Path) -> Iterator[Runs]:
    before = set(plane.jobs)
    made = Runs(Target("sagemaker", flags=GIVEN, startup_s=20.0, lives=plane.lives), tmp_path / "runs")
    yield made
    plane.heal()
    made.close()
    until(lambda: all(job.name in before for job in plane.active()), "all jobs to end")


def until(condition: Callable[[], Any], what: str, timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.05)


def job_of(plane: SageMakerPlane, run: showing.Run) -> Job:
    return plane.jobs[f"jupyter-dist-{run.id}-0"]
