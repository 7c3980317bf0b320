"""Fixtures of tests whose runs are Kubeflow's jobs: `plane`, `runs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.conformance.run_control import Runs
from jupyter_dist.conformance.target import Target

from .control_plane import Plane, shared_plane

__all__ = ["plane", "runs"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with shared_plane(tmp_path_factory) as plane, plane.as_user():
        yield plane


@pytest.fixture
def runs(plane: Plane, tmp_path: Path) -> Iterator[Runs]:
    target = Target("kubernetes", np=3, flags={"image": "any"}, startup_s=10.0, lives=plane.lives)
    started = Runs(target, tmp_path / "runs")
    yield started
    started.close()
