"""Networks that really learn in the pods of Kubeflow's jobs: digits, read as well as on one machine.

What an Indexed Job learns is in kubernetes.ipynb. The roles and the places are in test_kubeflow.py.
The API server is real, and the operators are stand-ins: tests/rigs/kubernetes/kubeflow_stand_in.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_dist.conformance.run_control import Runs, story
from jupyter_dist.job import State
from tests.rigs.digit_networks import HOROVOD, LOCAL_ACCURACY, PARAMETER_SERVER, TORCH, alike, digits  # noqa: F401
from tests.rigs.kubernetes.control_plane import IN_SHARED
from tests.rigs.kubernetes.fixtures import plane, runs  # noqa: F401

pytestmark = pytest.mark.xdist_group(IN_SHARED)


@pytest.mark.needs("horovod", "torch", "sklearn")
def test_horovod_learns_by_mpi_in_an_mpijob(runs: Runs, digits: dict[str, Any]) -> None:
    """In a second attempt: mpirun, whose places the first has used up, is started anew in the same pods."""
    flags: dict[str, Any] = {"kind": "mpijob", "processes_per_host": 2, "max_restarts": 1}
    run = runs.finish(HOROVOD, digits, **flags)
    alike(run, run.results)
    assert run.status.attempt == 1
    pods = [result["host"].removeprefix(f"jd-{run.id}-") for result in run.results]
    assert pods == ["worker-0", "worker-0", "worker-1"]


@pytest.mark.needs("torch", "sklearn")
@pytest.mark.parametrize("kind", ["pytorchjob", "trainjob"])
def test_torch_learns(runs: Runs, digits: dict[str, Any], kind: str) -> None:
    run = runs.finish(TORCH, digits, kind=kind)
    alike(run, run.results)


@pytest.mark.needs("tensorflow", "sklearn")
def test_tensorflow_learns_with_a_parameter_server_in_a_tfjob(runs: Runs, digits: dict[str, Any]) -> None:
    run = runs.finish(PARAMETER_SERVER, digits, kind="tfjob", np=4, chief=True, ps=1)
    assert run.status.state is State.SUCCEEDED, story(run)
    chief, *served = run.results
    assert chief["host"].endswith("-chief-0")
    assert "/job:ps/" in chief["on"]
    assert chief["accuracy"] >= LOCAL_ACCURACY
    assert served == [None, None, None]
