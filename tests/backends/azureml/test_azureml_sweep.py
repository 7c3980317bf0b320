"""Sweep jobs of the backend `azureml`: their trials, their ends, and the policies of the stand-in."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from jupyter_dist.conformance.run_control import Runs, story, wait_for_end
from jupyter_dist.job import State
from jupyter_dist.record import trials
from jupyter_dist.tuning.engines.azureml_engine import AzureMlEngine
from tests.rigs.azureml import AzurePlane
from tests.rigs.azureml.fixtures import kept_plane, plane, runs, signed_in, until  # noqa: F401
from tests.rigs.azureml.sweep_run import is_hopeless

pytestmark = [
    pytest.mark.needs("azure.identity", "azure.storage.blob"),
    pytest.mark.xdist_group("azureml"),  # they share its machines
]
SWEPT = """
import jupyter_dist as dist, math, time
for step in range(2):
    dist.log(loss=abs(math.log10(lr) + 2) + (0.1 if batch == 64 else 0) + 1 / (step + 1), unrelated=step)
(lr, batch, dist.parameters()["lr"])
"""
ENDLESS = """
import time, jupyter_dist as dist
for step in range(2000):
    dist.log(loss=1 + x)
    time.sleep(0.05)
"""


def test_the_jobs_of_a_sweep_are_trials(plane: AzurePlane, runs: Runs) -> None:
    """Each is a run with results and metrics. When the supervisor dies, another one goes on."""
    tune = {"lr": "loguniform(1e-5,1e-1)", "batch": "choice(32,64)"}
    given: dict[str, Any] = {"objective": "min:loss", "strategy": "random", "seed": 3, "parallel": 2}
    run = runs.start(SWEPT, np=1, tune=tune, max_jobs=4, **given)
    until(lambda: "succeeded" in list(run.trials.get("state", [])), "a trial's end")
    assert run.status.supervisor is not None
    os.kill(run.status.supervisor.pid, signal.SIGKILL)
    until(lambda: run.state is State.UNWATCHED, "the supervisor's death to be seen")
    wait_for_end(run)
    assert run.state is State.SUCCEEDED, story(run)
    sweep = plane.sweeps[f"jupyter-dist-{run.id}"]
    assert sweep.status == "Completed"
    table = run.trials
    assert list(table["state"]) == ["succeeded"] * 4, story(run)
    drawn = [json.loads(sweep.tags[f"_aml_system_{name}"]) for name in sweep.children]
    assert list(table["lr"]) == [each["lr"] for each in drawn], "nothing is tried twice"
    assert [sweep.series(name)[-1] for name in sweep.children] == pytest.approx(list(table["value"]))
    best = run.best
    assert best.job.trial is not None
    assert best.results[0] == tuple(best.job.trial["parameters"][key] for key in ("lr", "batch", "lr"))
    assert len(best.metrics) == 4
    name = list(sweep.children)[best.job.trial["number"]]
    command = plane.jobs[name].body["command"]
    assert f"'lr={best.results[0][0]}'" in command, "for those who look at the job"
    assert run.job.tuning is not None
    engine = AzureMlEngine(trials.search_of(run.job.tuning), run.job)
    for trial in trials.read(run.folder).trials[:3]:
        engine.learn(trial)
    proposal = engine.ask(3)
    assert proposal is not None
    assert proposal.handle == {"command_job": list(sweep.children)[3]}, "one that knows of three"
    assert (engine.ask(4), engine.exhausted()) == (None, "")
    assert [left for left in plane.mail() if run.id in left and "/code/" not in left] == []


def test_a_sweep_ends_the_hopeless_and_is_stopped(plane: AzurePlane, runs: Runs) -> None:
    """By its policy, on what arrives in MLflow; `stop` stops the sweep with all of its jobs."""
    given: dict[str, Any] = {"objective": "min:loss", "strategy": "grid", "max_jobs": 2, "parallel": 2}
    policy = "bandit(slack_amount=2,delay_evaluation=3)"
    run = runs.start(ENDLESS, np=1, tune={"x": "choice(0,9)"}, early_stopping=policy, **given)
    until(lambda: "pruned" in list(run.trials.get("state", [])), "the worse one to be ended")
    sweep = plane.sweeps[f"jupyter-dist-{run.id}"]
    assert sweep.ended_early == [f"{sweep.name}_1"]
    assert sweep.active
    run.stop()
    runs.wait(run)
    assert run.state is State.STOPPED, story(run)
    assert list(run.trials["state"]) == ["stopped", "pruned"]
    until(lambda: not plane.active(), "the end of all jobs")
    assert sweep.status == "Canceled"


@pytest.mark.parametrize(
    ("policy", "maximize", "hopeless"),
    [
        ({"policyType": "Bandit", "slackFactor": 0.5}, False, "cd"),
        ({"policyType": "Bandit", "slackAmount": 2.5}, False, "d"),
        ({"policyType": "Bandit", "slackFactor": 0.5, "delayEvaluation": 3}, False, ""),
        ({"policyType": "Bandit", "slackFactor": 0.5, "evaluationInterval": 3}, False, ""),
        ({"policyType": "Bandit", "slackFactor": 0.5}, True, "ab"),
        ({"policyType": "MedianStopping"}, False, "cd"),
        ({"policyType": "TruncationSelection", "truncationPercentage": 25}, False, "d"),
        ({"policyType": "TruncationSelection", "truncationPercentage": 25}, True, "a"),
    ],
)
def test_the_stand_in_s_policies(policy: dict[str, Any], maximize: bool, hopeless: str) -> None:
    """As Azure documents them, by hand."""
    series = {"a": [2.0, 1.0], "b": [2.0, 1.5], "c": [3.0, 3.0], "d": [4.0, 4.0]}
    found = [name for name in series if is_hopeless(policy, name, series, maximize=maximize)]
    assert "".join(found) == hopeless
