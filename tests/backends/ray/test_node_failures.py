"""The backend `ray` while machines die: one of the nodes, then the head."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.conformance.run_control import Runs, assert_state, story, wait_until
from jupyter_dist.job import State
from tests.rigs.ray.nodes import IN_SHARED, RayNodes, runs_on, shared_ray

pytestmark = pytest.mark.xdist_group(IN_SHARED)
UP = """
import time
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    with shared_ray(tmp_path_factory) as running:
        yield running


@pytest.fixture
def runs(ray: RayNodes, tmp_path: Path) -> Iterator[Runs]:
    with runs_on(ray, tmp_path, np=2, gpus_per_worker=0, placement_strategy="SPREAD") as started:
        yield started


def test_a_node_that_vanishes(ray: RayNodes, runs: Runs) -> None:
    run = runs.until_up(runs.start(UP))
    ray.power_off("h2")
    runs.wait(run)
    assert_state(run, State.FAILED)
    assert "host h2 was lost: Ray lost its node" in str(run.status.reason), story(run)
    assert [rank.state for rank in run.status.ranks if rank.host == "h2"] == [State.LOST]


def test_a_head_that_is_killed(ray: RayNodes, runs: Runs) -> None:
    """It is told at once; the ranks go on until Ray ends its nodes, and theirs is the end that is told."""
    run = runs.until_up(runs.start(UP, placement_strategy="PACK"))
    processes = [(str(rank.host), int(rank.pid or 0)) for rank in run.status.ranks]
    assert ray.kill("driver", "gcs_server") == 1
    wait_until(lambda: "head of Ray has not answered" in str(run.status.reason), "the reason", run)
    runs.wait(run)
    assert_state(run, State.FAILED)
    assert "was lost" in str(run.status.reason), story(run)
    runs.gone(*processes)
