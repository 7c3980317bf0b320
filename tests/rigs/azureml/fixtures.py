"""Fixtures of tests whose runs are jobs of Azure ML: `plane`, `signed_in`, `runs`; and words for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.conformance import Target
from jupyter_dist.conformance.deadlines import wait_until as until
from jupyter_dist.conformance.run_control import Runs
from jupyter_dist.showing import run as showing
from tests.rigs.kept_plane import KeptPlane

from .command_run import CommandRun
from .service import AzurePlane

__all__ = ["job_of", "kept_plane", "plane", "runs", "signed_in", "until"]


@pytest.fixture(scope="module")
def kept_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptPlane[AzurePlane]]:
    kept = KeptPlane(lambda: AzurePlane(tmp_path_factory.mktemp("azureml")))
    yield kept
    kept.close()


@pytest.fixture
def plane(kept_plane: KeptPlane[AzurePlane]) -> AzurePlane:
    return kept_plane.whole()


@pytest.fixture(autouse=True)
def signed_in(plane: AzurePlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    plane.heal()
    plane.sign_in()
    plane.front.requests.clear()
    for name in ("SUBSCRIPTION", "RESOURCEGROUP", "WORKSPACE_NAME"):
        monkeypatch.delenv(f"AZUREML_ARM_{name}", raising=False)
    for name, value in plane.environment(os.environ["PATH"]).items():
        monkeypatch.setenv(name, value)
    yield
    plane.own_faults.tell()


@pytest.fixture
def runs(plane: AzurePlane, tmp_path: Path) -> Iterator[Runs]:
    made = Runs(Target("azureml", flags=plane.flags, startup_s=20.0, lives=plane.lives), tmp_path / "runs")
    yield made
    plane.heal()
    plane.sign_in()
    made.close()
    until(lambda: not plane.active(), "all jobs to end")


def job_of(plane: AzurePlane, run: showing.Run) -> CommandRun:
    return plane.jobs[f"jupyter-dist-{run.id}-0"]
