"""Networks that really learn in jobs of Azure ML: digits, read as well as on one machine.

Horovod's learn by MPI in notebooks/azureml.ipynb.
"""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_dist.conformance.run_control import Runs, story
from jupyter_dist.job import State
from tests.rigs.azureml.fixtures import kept_plane, plane, runs, signed_in  # noqa: F401
from tests.rigs.digit_networks import LOCAL_ACCURACY, PARAMETER_SERVER, TORCH, alike, digits  # noqa: F401

pytestmark = [
    pytest.mark.needs("azure.identity", "azure.storage.blob", "sklearn"),
    pytest.mark.xdist_group("azureml"),  # they share its machines
]


@pytest.mark.needs("torch")
def test_torch_learns_on_two_machines(runs: Runs, digits: dict[str, Any]) -> None:
    run = runs.finish(TORCH, digits, np=3, instance_count=2, distribution="pytorch")
    alike(run, run.results)
    assert len({result["host"] for result in run.results}) == 2


@pytest.mark.needs("tensorflow")
def test_tensorflow_learns_with_a_parameter_server(runs: Runs, digits: dict[str, Any]) -> None:
    flags: dict[str, Any] = {"distribution": "tensorflow", "chief": True, "ps": 1}
    run = runs.finish(PARAMETER_SERVER, digits, np=4, instance_count=2, **flags)
    assert run.status.state is State.SUCCEEDED, story(run)
    chief, *served = run.results
    assert "/job:ps/" in chief["on"]
    assert chief["accuracy"] >= LOCAL_ACCURACY
    assert served == [None, None, None]
