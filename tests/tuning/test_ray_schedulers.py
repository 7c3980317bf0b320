"""Schedulers of Ray Tune, in a real Ray, over trials that are runs."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.plan.run_plan import make_plan
from jupyter_dist.record import reader, trials
from jupyter_dist.record.trials import PRUNED, SUCCEEDED, Trial
from jupyter_dist.search.dimensions import Whole
from jupyter_dist.search.spec import Search
from jupyter_dist.start import Origin, start_cell
from jupyter_dist.tuning.engines import ray_tune_parts
from jupyter_dist.tuning.engines.ray_tune_engine import RayTuneEngine
from tests.rigs.ray.nodes import IN_SHARED, RayNodes, shared_ray
from tests.tuning.test_engines import JOB
from tests.tuning.test_tuning_engines import story

pytestmark = [pytest.mark.needs("optuna", "ray"), pytest.mark.xdist_group(IN_SHARED)]

ENDLESS = """
import itertools, time
import jupyter_dist as dist
for number in itertools.count():
    dist.log(score=lr / 10 + number, step=number)
    time.sleep(0.05)
"""
"""The larger `lr`, the better, at each step."""


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    with shared_ray(tmp_path_factory) as found:
        yield found


@pytest.mark.parametrize(
    "scheduler",
    [
        "asha(max_t=8,grace_period=2,reduction_factor=2)",
        "median(max_t=8,grace_period=2,min_samples_required=1)",
    ],
)
def test_weak_trials_end_and_good_ones_reach_max_t(ray: RayNodes, scheduler: str) -> None:
    asked = {
        **{"backend": "ray", "address": ray.address, "gpus_per_worker": 0, "np": 1},
        **{"tune": {"lr": "choice(4,3,2,1)"}, "objective": "max:score", "strategy": "grid"},
        **{"parallel": 2, "scheduler": scheduler},
    }
    run = start_cell(ENDLESS, {}, make_plan(asked), Origin("In[1]", Path.cwd()))
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    found = trials.read(run.folder).trials
    states = {trial.parameters["lr"]: trial.state for trial in found}
    assert states[4] == "succeeded", story(run)
    assert set(states.values()) == {"succeeded", "pruned"}, story(run)
    for trial in found:
        if trial.state == "succeeded":
            assert len(trial.steps) == 8
            place = run.folder.path.parent / trial.run_id
            assert reader.status(type(run.folder)(place)).reason == "the trial has reached max_t=8"


@pytest.mark.parametrize("strategy", ["random", "bayesian"])
def test_a_scheduler_knows_the_trials_that_ended_before_a_restart(
    ray: RayNodes, own_folders: Path, wait_for: Callable[..., Any], strategy: Any
) -> None:
    search = Search(
        {"lr": Whole(1, 9)},
        *("max", "score", 9, 1, strategy),
        scheduler="asha(max_t=8,grace_period=2,reduction_factor=2)",
    )
    trial = {"backend": "ray", "world_size": 1, "options": {"address": ray.address}}
    folders.create(own_folders, JOB.id, 1)
    engine = RayTuneEngine(search, dataclasses.replace(JOB, tuning={"trial": trial}))
    from ray._private import auto_init_hook

    # For good, since Tune's thread outlives the test: with its next call it would start a Ray here.
    auto_init_hook.enable_auto_connect = False
    try:
        for number, state in enumerate((SUCCEEDED, PRUNED, SUCCEEDED)):
            value = 9.0 if state == SUCCEEDED else None
            steps = tuple((step, 9.0) for step in range(2))
            engine.learn(Trial(number, f"r-t{number}", {"lr": 9}, state, value, steps))
        wait_for(lambda: engine.ask(3) is not None or engine.exhausted(), "a new trial")
        assert engine.exhausted() is None
        wait_for(lambda: engine.pruned_at(3, [(0, 1.0), (10, 1.0)]) == 10, "the scheduler's decision")
        assert engine.exhausted() is None
    finally:
        engine.close()
        wait_for(lambda: not any(one.name == "ray-tune" for one in threading.enumerate()), "its thread's end")


@pytest.mark.parametrize(
    ("scheduler", "kind", "brackets"),
    [
        ("asha(max_t=9,grace_period=3,reduction_factor=3)", "AsyncHyperBandScheduler", 1),
        ("hyperband(max_t=9)", "AsyncHyperBandScheduler", 3),
        ("median(max_t=9)", "MedianStoppingRule", 0),
    ],
)
def test_the_objects_of_ray_tune(scheduler: str, kind: str, brackets: int) -> None:
    search = Search({"lr": Whole(1, 4)}, "max", "score", 4, 2, "random", scheduler=scheduler)
    made = ray_tune_parts._scheduler(search)
    assert type(made).__name__ == kind
    assert made.debug_string().count("Bracket:") == brackets
