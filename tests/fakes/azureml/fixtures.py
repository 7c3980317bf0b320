"""Fixtures of tests whose runs are jobs of Azure ML: `plane`, `signed_in`, `runs`; and words for them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance import Target
from jupyter_dist.conformance.runs import Runs
from jupyter_dist.showing import run as showing

from .command_run import CommandRun
from .plane import AzurePlane

__all__ = ["job_of", "plane", "runs", "signed_in", "until"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzurePlane]:
    with AzurePlane(tmp_path_factory.mktemp("azureml")) as made:
        yield made


@pytest.fixture(autouse=True)
def signed_in(plane: AzurePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    plane.heal()
    plane.sign_in()
    plane.front.requests.clear()
    for name in ("SUBSCRIPTION", "RESOURCEGROUP", "WORKSPACE_NAME"):
        monkeypatch.delenv(f"AZUREML_ARM_{name}", raising=False)
    for name, value in plane.environment(os.environ["PATH"]).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def runs(plane: AzurePlane, tmp_path: Path) -> Iterator[Runs]:
    made = Runs(Target("azureml", flags=plane.flags, startup_s=20.0, lives=plane.lives), tmp_path / "runs")
    yield made
    plane.heal()
    plane.sign_in()
    made.close()
    until(lambda: not plane.active(), "all jobs to end")


def until(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.05)


def job_of(plane: AzurePlane, run: showing.Run) -> CommandRun:
    return plane.jobs[f"jupyter-dist-{run.id}-0"]
