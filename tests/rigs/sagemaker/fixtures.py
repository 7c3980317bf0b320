"""Fixtures of tests whose runs are training jobs: `plane`, `signed_in`, `runs`; and words for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.conformance import Target
from jupyter_dist.conformance.deadlines import wait_until as until
from jupyter_dist.conformance.run_control import Runs
from jupyter_dist.showing import run as showing
from tests.rigs.kept_plane import KeptPlane

from .job import Job
from .service import SageMakerPlane

__all__ = ["GIVEN", "job_of", "kept_plane", "plane", "runs", "signed_in", "until"]

GIVEN = {
    "role": SageMakerPlane.role,
    "instance_type": "ml.c5.xlarge",
    "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/my-pytorch-training:1",
}
"""Flags of a run."""


@pytest.fixture(scope="module")
def kept_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptPlane[SageMakerPlane]]:
    kept = KeptPlane(lambda: SageMakerPlane(tmp_path_factory.mktemp("sagemaker")))
    yield kept
    kept.close()


@pytest.fixture
def plane(kept_plane: KeptPlane[SageMakerPlane]) -> SageMakerPlane:
    return kept_plane.whole()


@pytest.fixture(autouse=True)
def signed_in(plane: SageMakerPlane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    plane.heal()
    plane.requests.clear()
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name, value in plane.environment.items():
        monkeypatch.setenv(name, value)
    yield
    plane.own_faults.tell()


@pytest.fixture
def runs(plane: SageMakerPlane, tmp_path: Path) -> Iterator[Runs]:
    before = set(plane.jobs)
    made = Runs(Target("sagemaker", flags=GIVEN, startup_s=20.0, lives=plane.lives), tmp_path / "runs")
    yield made
    plane.heal()
    made.close()
    until(lambda: all(job.name in before for job in plane.active()), "all jobs to end")


def job_of(plane: SageMakerPlane, run: showing.Run) -> Job:
    return plane.jobs[f"jupyter-dist-{run.id}-0"]
