"""Elastic runs in the pods of a PyTorchJob: the API server is real, the training operator is a stand-in.

tests/rigs/kubernetes/kubeflow_stand_in.py says what it does of what the real one does.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_dist.conformance.run_control import Runs, story, wait_until
from jupyter_dist.job import State
from jupyter_dist.record import reader
from tests.rigs.kubernetes.control_plane import IN_SHARED, NAMESPACE, Plane
from tests.rigs.kubernetes.fixtures import plane, runs  # noqa: F401

pytestmark = pytest.mark.xdist_group(IN_SHARED)

TRAINS = """
import os, time
import torch
import jupyter_dist as dist

dist.init()
kept = dist.checkpoint_dir() / "step"
step = torch.tensor([int(kept.read_text()) if dist.rank() == 0 and kept.exists() else 0])
torch.distributed.broadcast(step, 0)
story = (dist.attempt(), dist.world_size(), step.item() > 0)
print("up", *story, flush=True)
while dist.attempt() < 2:
    ones = torch.ones(1)
    torch.distributed.all_reduce(ones)
    assert ones.item() == dist.world_size()
    step += 1
    if dist.rank() == 0:
        kept.with_suffix(".new").write_text(str(step.item()))
        kept.with_suffix(".new").rename(kept)
        if step == 1:
            print("kept", flush=True)
    time.sleep(0.05)
{"story": story, "pod": os.uname().nodename, "told": sorted(n for n in os.environ if n.startswith("PET_"))}
"""
WAITS = """
import os, time
print("up", os.environ["JUPYTER_DIST_ATTEMPT"], os.environ["WORLD_SIZE"], flush=True)
while os.environ["JUPYTER_DIST_ATTEMPT"] != "2":
    time.sleep(0.1)
os.uname().nodename
"""
FLAGS: dict[str, Any] = {"kind": "pytorchjob", "np": 3, "min_np": 2, "max_np": 3}


@contextlib.contextmanager
def full(plane: Plane) -> Iterator[None]:
    """Meanwhile no node takes another pod."""

    def hold(held: bool) -> None:
        for name in plane.nodes:
            plane.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": held}})

    hold(True)
    try:
        yield
    finally:
        hold(False)


def said(run: Any, attempt: int, rank: int = 0) -> str:
    path = run.folder.rank(attempt, rank).path
    return str(reader.output(run.folder, rank, attempt).decode()) if path.exists() else ""


@pytest.mark.needs("torch")
def test_a_run_goes_on_with_fewer_pods_and_grows_again(plane: Plane, runs: Runs) -> None:
    """By way of a checkpoint of rank 0, whose pod stays."""
    run = runs.start(TRAINS, **FLAGS)
    wait_until(lambda: "up 0 3 False\nkept\n" in said(run, 0), "three ranks that train", run)
    with full(plane):
        plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/jd-{run.id}-worker-1")
        wait_until(lambda: "up 1 2 True" in said(run, 1), "two ranks to go on", run)
        wait_until(lambda: f"jd-{run.id}-worker-1" in pending(plane), "another pod to be asked for", run)
    runs.wait(run)
    assert run.status.state is State.SUCCEEDED, story(run)
    assert [result["story"] for result in run.results] == [(2, 3, True)] * 3, story(run)
    pods = sorted(result["pod"].rpartition("-")[2] for result in run.results)
    assert pods == ["0", "1", "2"]
    assert [result["told"] for result in run.results] == [[]] * 3, "the operator's words for torchrun"
    assert run.status.restarts == 0
    names = [json.loads((run.folder.attempt(n) / ".kubernetes.json").read_bytes())["handle"] for n in (0, 2)]
    assert names[0] == names[1], "another process would not find the pods in the midst of it"


def pending(plane: Plane) -> list[str]:
    return [p["metadata"]["name"] for p in plane.pods() if p["status"].get("phase") == "Pending"]


def test_pods_that_are_not_wanted_any_more_are_no_failure_and_a_deleted_job_is(
    plane: Plane, runs: Runs
) -> None:
    """Nobody makes pods in place of others then, but for another attempt, which is asked for by a flag."""
    run = runs.until_up(runs.start(WAITS, **FLAGS, max_restarts=1))
    job = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs/jd-{run.id}"
    fewer = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}
    plane.api.ask("PATCH", job, fewer, kind="application/merge-patch+json")
    wait_until(lambda: "up 1 2" in said(run, 1), "two ranks to go on", run)
    assert run.status.restarts == 0
    plane.api.delete(job)
    runs.wait(run)
    assert run.status.state is State.SUCCEEDED, story(run)
    assert run.results == [f"jd-{run.id}-2-worker-{index}" for index in range(3)]
    assert run.status.restarts == 1
    assert "the PyTorchJob was deleted; restart 1 of 1" in story(run)
