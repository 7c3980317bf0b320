"""Runs in the pods of Kubeflow's jobs: the API server is real, the training operator is a stand-in.

tests/rigs/kubernetes/kubeflow_stand_in.py says what it does of what the real one does.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from jupyter_dist.backends.kubernetes.backend import Kubernetes
from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.run_control import Runs, story
from jupyter_dist.errors import InputError
from jupyter_dist.job import State
from tests.rigs.kubernetes.control_plane import IN_SHARED, NAMESPACE, Plane
from tests.rigs.kubernetes.fixtures import plane, runs  # noqa: F401

pytestmark = pytest.mark.xdist_group(IN_SHARED)

CELL = """
import json, os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
print("up", flush=True)
here = {"pod": os.uname().nodename, "tf": json.loads(os.environ["TF_CONFIG"])}
{**{name: os.environ[name] for name in names}, **here}
"""


def left(plane: Plane) -> list[Any]:
    group = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}"
    jobs = [job for kind in ("pytorchjobs", "tfjobs") for job in plane.api.get(f"{group}/{kind}")["items"]]
    return [one["metadata"]["name"] for one in [*jobs, *plane.pods()]]


def test_the_pods_of_a_pytorchjob_and_of_a_tfjob_have_the_ranks(plane: Plane, runs: Runs) -> None:
    """Master first, then workers; chief, workers, parameter servers. Whose order it is, is ours."""
    assert (
        Kubernetes().detect()["with"]
        == "Kubeflow's training operator, Kubeflow's MPI operator, Kubeflow's Trainer"
    )
    torch = runs.start(CELL, kind="pytorchjob", processes_per_host=2)
    tensorflow = runs.start(CELL, kind="tfjob", chief=True, ps=1, name="books", restart_policy="OnFailure")
    results = runs.wait(torch).results
    assert torch.status.state is State.SUCCEEDED, story(torch)
    name = f"jd-{torch.id}"
    assert [result["pod"] for result in results] == [f"{name}-master-0"] * 2 + [f"{name}-worker-0"]
    assert [result["LOCAL_RANK"] for result in results] == ["0", "1", "0"]
    assert {(result["WORLD_SIZE"], result["MASTER_ADDR"]) for result in results} == {
        ("3", results[0]["MASTER_ADDR"])
    }
    assert results[0]["MASTER_ADDR"].startswith("198.18."), "not what the operator says: it counts pods"
    results = runs.wait(tensorflow).results
    assert tensorflow.status.state is State.SUCCEEDED, story(tensorflow)
    assert [result["pod"] for result in results] == ["books-chief-0", "books-worker-0", "books-ps-0"]
    assert [result["tf"]["task"]["type"] for result in results] == ["chief", "worker", "ps"]
    deadline = Deadline()  # the garbage collector learns of a new kind every 30 s
    while left(plane):
        assert not deadline.passed(), left(plane)
        time.sleep(0.1)


def test_the_pods_of_a_trainjob_have_the_ranks(plane: Plane, runs: Runs) -> None:
    """They are the runtime's, known by the labels of its JobSet."""
    unknown = runs.start(CELL, kind="trainjob", runtime="of-nobody")
    run = runs.start(CELL, kind="trainjob", processes_per_host=2)
    results = runs.wait(run).results
    assert run.status.state is State.SUCCEEDED, story(run)
    pods = [result["pod"].removeprefix(f"jd-{run.id}-node-0-") for result in results]
    assert pods == ["0", "0", "1"]
    assert [result["LOCAL_RANK"] for result in results] == ["0", "1", "0"]
    runs.wait(unknown)
    assert "TrainingRuntimeNotSupported: runtime of-nobody is not supported" in str(unknown.status.reason)
    with pytest.raises(InputError, match="--pvc does not work with a TrainJob"):
        runs.plan(kind="trainjob", pvc=("data:/data",))


def test_without_its_mpirun_an_mpijob_has_ended(plane: Plane, runs: Runs) -> None:
    """Its launcher's pod has no rank, and the ranks cannot go on without it."""
    run = runs.until_up(
        runs.start("import time\nprint('up', flush=True)\ntime.sleep(600)", kind="mpijob", np=2)
    )
    launcher = next(name for pod in plane.pods() if "-launcher-" in (name := pod["metadata"]["name"]))
    plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{launcher}")
    runs.wait(run)
    assert run.status.state is State.FAILED, story(run)
    assert f"the launcher's pod, {launcher} on node node-" in story(run)


def test_a_cluster_without_kubeflow_says_so(plane: Plane, runs: Runs) -> None:
    group = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    told = plane.api.get(f"{group}/tfjobs.kubeflow.org")
    plane.api.delete(f"{group}/tfjobs.kubeflow.org")
    try:
        run = runs.finish(CELL, kind="tfjob")
        assert "the cluster knows no TFJob: that needs Kubeflow's training operator" in str(run.status.reason)
    finally:
        kept = {key: told["metadata"][key] for key in ("name",)}
        plane.api.post(group, json.loads(json.dumps({**told, "metadata": kept, "status": None})))
