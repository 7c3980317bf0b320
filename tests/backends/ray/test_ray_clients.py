"""The backend `ray` from a machine that is no node of the Ray, and what befalls nodes meanwhile."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.conformance.run_control import Runs, assert_state, story
from jupyter_dist.job import State
from tests.rigs.ray.nodes import RayNodes, ray_nodes, runs_on

pytestmark = pytest.mark.xdist_group("ray's clients")  # they share a Ray
LINES = 50_000
UP_ONCE = """
import os, time
print("up", flush=True)
if os.environ["JUPYTER_DIST_ATTEMPT"] == "0":
    time.sleep(600)
"""
FILL = """
import sys, time
import ray
for last in (False, False, False, True):
    try:
        ray.init(sys.argv[1], log_to_driver=False)
        break
    except ConnectionError:  # https://github.com/ray-project/ray/issues/63202
        if last:
            raise
kept = [ray.put(bytes(8_000_000)) for _ in range(9)]
print("full", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """The head is on h1, the other node is h2: this machine has nothing of Ray."""
    with ray_nodes(tmp_path_factory.mktemp("ray"), 2, cpus=2, head="h1") as running:
        yield running


@pytest.fixture
def runs(ray: RayNodes, tmp_path: Path) -> Iterator[Runs]:
    with runs_on(
        ray, tmp_path, np=3, address=ray.client_address, gpus_per_worker=0, placement_strategy="SPREAD"
    ) as started:
        yield started


def test_a_client_that_reaches_nothing_but_rays_port(ray: RayNodes, runs: Runs) -> None:
    """Then Ray's actors carry the frames; a full object store does not hinder them."""
    with subprocess.Popen([sys.executable, "-c", FILL, ray.client_address], stdout=subprocess.PIPE) as filler:
        try:
            assert filler.stdout is not None
            assert b"full" in filler.stdout.readline()
            with ray.only_client_port():
                cell = f"for number in range({LINES}): print('line', number)\nnumber"
                run = runs.finish(cell)
        finally:
            filler.kill()
    assert_state(run, State.SUCCEEDED)
    assert "through Ray's actors" in run.folder.supervisor_log.read_text()
    for rank in range(3):
        assert run.log(rank).split("\n")[:LINES] == [f"line {number}" for number in range(LINES)]


def test_an_address_for_nodes_alone(ray: RayNodes, runs: Runs) -> None:
    run = runs.finish("1", address=ray.address)
    assert_state(run, State.FAILED)
    assert re.search(r"not a node of the Ray at .*--address ray://", str(run.status.reason)), story(run)


def test_a_raylet_that_is_killed(ray: RayNodes, runs: Runs) -> None:
    """Its node is lost to Ray, though the machine is there: another attempt finds room on the other node."""
    run = runs.until_up(runs.start(UP_ONCE, np=2, max_restarts=1))
    processes = [(str(rank.host), int(rank.pid or 0)) for rank in run.status.ranks]
    assert ray.kill("h2", "raylet/raylet") == 1
    runs.wait(run)
    assert_state(run, State.SUCCEEDED)
    assert run.status.attempt == 1
    assert {rank.host for rank in run.status.ranks} == {"h1"}
    runs.gone(*processes)
