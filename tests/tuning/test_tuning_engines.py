"""Each engine of tuning finds what is known to be best, with trials that are runs alike."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.folder import trials_of
from jupyter_dist.plan.run_plan import make_plan
from jupyter_dist.record import reader
from jupyter_dist.start import Origin, start_cell
from tests.rigs.azureml import AzurePlane
from tests.rigs.ray.nodes import IN_SHARED, shared_ray
from tests.rigs.sagemaker import SageMakerPlane
from tests.rigs.sagemaker.fixtures import GIVEN

pytestmark = pytest.mark.needs("optuna")

Given = Mapping[str, Any]
Open = Callable[[pytest.TempPathFactory], contextlib.AbstractContextManager[Given]]


@contextlib.contextmanager
def _local(folders: pytest.TempPathFactory) -> Iterator[Given]:
    # What this engine proposes hangs on which trials have ended, and in which order.
    yield {"backend": "local", "parallel": 1, "early_stopping": False}


@contextlib.contextmanager
def _ray(folders: pytest.TempPathFactory) -> Iterator[Given]:
    with shared_ray(folders) as ray:
        yield {"backend": "ray", "address": ray.address, "gpus_per_worker": 0}


@contextlib.contextmanager
def _sagemaker(folders: pytest.TempPathFactory) -> Iterator[Given]:
    with (
        SageMakerPlane(folders.mktemp("sagemaker")) as plane,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in plane.environment.items():
            patch.setenv(name, value)
        yield {"backend": "sagemaker", **GIVEN}
        plane.tuning.stop_all()


@contextlib.contextmanager
def _azureml(folders: pytest.TempPathFactory) -> Iterator[Given]:
    with AzurePlane(folders.mktemp("azureml")) as plane, pytest.MonkeyPatch.context() as patch:
        for name, value in plane.environment(os.environ["PATH"]).items():
            patch.setenv(name, value)
        # Its bayesian sampling takes no seed, and ends nothing early.
        yield {"backend": "azureml", **plane.flags, "seed": None, "early_stopping": False}


ENGINES = [
    pytest.param(_local, id="optuna"),
    pytest.param(_ray, id="ray-tune", marks=pytest.mark.xdist_group(IN_SHARED)),
    pytest.param(
        _sagemaker,
        id="sagemaker",
        marks=[pytest.mark.xdist_group("sagemaker"), pytest.mark.needs("boto3", "moto")],
    ),
    pytest.param(
        _azureml,
        id="azureml",
        marks=[
            pytest.mark.xdist_group("azureml"),
            pytest.mark.needs("azure.identity", "azure.storage.blob"),
        ],
    ),
]
"""What gives the flags, by the names of their fields, of runs on the backend that an engine belongs to."""


@pytest.fixture(scope="module", params=ENGINES)
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    opened: Open = request.param
    with opened(tmp_path_factory) as found:
        yield found


LEARNS = """
import math, time
import jupyter_dist as dist
for step in range(4):
    dist.log(loss=abs(math.log10(lr) + 3) + 1 / (step + 1), step=step)
    print("step", step)
    time.sleep(0.3)
lr
"""
"""Best at 0.001, whose decade is from 10**-3.5 to 10**-2.5. The worse the rate, the worse each step."""


SEED = 5
"""With this one none of the trials is in the decade that are at random at first: the engine has to learn."""


def test_the_decade_is_found_within_12_trials(given: Given, wait_for: Callable[..., Any]) -> None:
    asked = {
        "np": 1,
        "tune": {"lr": "loguniform(1e-5,1e-1)"},
        "objective": "min:loss",
        "max_jobs": 12,
        "parallel": 2,
        "seed": SEED,
        "early_stopping": True,
        **given,
    }
    run = start_cell(LEARNS, {}, make_plan(asked), Origin("In[1]", Path.cwd()))
    wait_for(lambda: run.state.ended or _decade_found(run), "a rate in the best decade")
    assert _decade_found(run), story(run)
    run.stop()
    wait_for_end(run)
    assert run.state in ("stopped", "succeeded"), story(run)
    assert set(run.trials["state"]) <= {"succeeded", "pruned", "stopped"}, story(run)
    best = run.best
    assert len(run.trials) > 3
    assert best.job.backend == given["backend"]
    assert best.job.trial is not None
    assert best.results[0] == best.job.trial["parameters"]["lr"] == pytest.approx(1e-3, rel=2.2)
    assert best.log(0).splitlines() == [f"step {step}" for step in range(4)]
    assert len(best.metrics) == 4
    assert [one.id for one in trials_of(run.folder)] == run.trials["run"].tolist()


def _decade_found(run: jupyter_dist.Run) -> bool:
    table = run.trials
    found = table[table["state"] == "succeeded"]["lr"]
    return bool(((found > 10**-3.5) & (found < 10**-2.5)).any())


def story(run: jupyter_dist.Run) -> str:
    found = [str(run.status), run.folder.supervisor_log.read_text()[-3000:], run.folder.trials.read_text()]
    for trial in trials_of(run.folder):
        found += [str(reader.status(trial)), trial.supervisor_log.read_text()[-1000:]]
    return "\n".join(found)
