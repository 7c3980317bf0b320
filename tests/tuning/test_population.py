"""Population based training: its decisions, compared with those of Ray Tune, and how trials continue."""

from __future__ import annotations

import inspect
import json
import math
import os
import random
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist import queries
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.folder import RunFolder, trials_of
from jupyter_dist.job import State
from jupyter_dist.plan.run_plan import make_plan
from jupyter_dist.record import reader, trials
from jupyter_dist.record.metrics import points as metrics
from jupyter_dist.record.trials import FAILED, SUCCEEDED, Source, Trial
from jupyter_dist.search.dimensions import Choice, Dimension, Real, Value, Whole
from jupyter_dist.search.schedulers import read_scheduler
from jupyter_dist.search.spec import Search
from jupyter_dist.start import Origin, start_cell
from jupyter_dist.tuning.engines.population_engine import PopulationEngine, explore, quantiles
from tests.rigs.hosts import Hosts
from tests.rigs.launching import carrier_of
from tests.tuning.test_engines import JOB
from tests.tuning.test_tuning import story

pytestmark = pytest.mark.usefixtures("warm")

LEARNS = """
import json
import jupyter_dist as dist

path = dist.checkpoint_dir() / "weights.json"
weight, seen = json.loads(path.read_text()) if path.exists() else (1.0, [])
for epoch in range(len(seen), 100):
    weight *= 1 - rate
    seen.append(rate)
    dist.barrier()
    if dist.rank() == 0:
        path.write_text(json.dumps([weight, seen]))
        dist.log(loss=weight, step=epoch)
"""
"""The larger the rate, the smaller the loss. The checkpoint has the rate of each epoch."""

ASKED: Mapping[str, Any] = {
    "np": 2,
    "tune": {"rate": "loguniform(0.01,0.5)"},
    "objective": "min:loss",
    "scheduler": "pbt(perturbation_interval=2,max_t=6)",
    "max_jobs": 4,
    "parallel": 2,
    "seed": 1,
}


def search(**more: Any) -> Search:
    given: dict[str, Any] = {"scheduler": "pbt(perturbation_interval=2,max_t=5)", "population": 4, **more}
    return Search({"rate": Real(0.01, 0.5, log=True)}, "min", "loss", 12, 4, "random", seed=1, **given)


def ended(number: int, value: float | None, source: Source | None = None, **more: Any) -> Trial:
    state = FAILED if value is None else SUCCEEDED
    until = (0 if source is None else source.values) + 2
    told: dict[str, Any] = {"state": state, "source": source, "until": until, "paused": True, **more}
    return Trial(number, f"r-t{number}", {"rate": 0.1 + number / 100}, value=value, **told)


@pytest.mark.needs("ray")
def test_a_perturbation_is_that_of_ray_tune() -> None:
    from ray import tune
    from ray.tune.schedulers import pbt

    values: dict[str, Value] = {"batch": 32, "kind": "b", "rate": 0.05, "width": 10}
    mutations = {
        **{"batch": [16, 32, 64], "kind": ["a", "b"]},
        **{"rate": tune.uniform(0, 1), "width": tune.randint(1, 100)},
    }
    space: dict[str, Dimension] = {
        **{"batch": Choice((16, 32, 64)), "kind": Choice(("a", "b"))},
        **{"rate": Real(0, 1), "width": Whole(1, 99)},
    }
    listed = ("batch", "kind")
    for seed in range(200):
        for names, resample in ((tuple(values), 0.0), (listed, 0.25), (listed, 1.0)):
            random.seed(seed)
            theirs, _ = pbt._explore(
                {name: values[name] for name in names},
                {name: mutations[name] for name in names},
                resample,
                (1.2, 0.8),
                None,
            )
            chance = random.Random(seed)
            ours = explore(values, {name: space[name] for name in names}, resample, chance)
            assert ours == theirs
    asked = read_scheduler("pbt(perturbation_interval=1,max_t=2)")
    defaults = inspect.signature(pbt.PopulationBasedTraining).parameters
    assert asked.fractions == {name: defaults[name].default for name in asked.fractions}
    assert defaults["perturbation_factors"].default == (1.2, 0.8)


@dataclass(frozen=True)
class _Theirs:
    """What Ray Tune's scheduler looks at in a trial of its own."""

    number: int

    def is_finished(self) -> bool:
        return False


@pytest.mark.needs("ray")
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.25, 0.4, 0.5])
def test_weak_and_strong_trials_are_those_of_ray_tune(fraction: float) -> None:
    from ray.tune.schedulers import PopulationBasedTraining

    for size in range(1, 10):
        values = random.Random(size).sample(range(100), size)
        theirs = PopulationBasedTraining(
            metric="loss", mode="min", hyperparam_mutations={"rate": [1]}, quantile_fraction=fraction
        )
        theirs._trial_state = {
            _Theirs(number): SimpleNamespace(last_score=-value) for number, value in enumerate(values)
        }
        found = quantiles(
            [ended(number, float(value)) for number, value in enumerate(values)], search(), fraction
        )
        assert [[one.number for one in part] for part in found] == [
            [one.number for one in part] for part in theirs._quantiles()
        ]


def test_a_draw_or_a_perturbation_stays_in_its_range() -> None:
    space: dict[str, Dimension] = {
        "rate": Real(1e-4, 1e-1, log=True),
        "drop": Real(0, 0.9, step=0.3),
        "width": Whole(2, 8, step=3),
        "depth": Whole(1, 3, log=True),
        "flag": Choice((True, 1, None)),
    }
    chance = random.Random(0)
    values = explore({}, space, 1.0, chance)
    seen = []
    for _ in range(500):
        values = explore(values, space, 0.25, chance)
        seen.append(values)
        for name, one in space.items():
            assert one.holds(values[name]), (name, values[name])
            if name not in ("rate", "flag"):
                assert values[name] in (one.points() or ())
    assert {(type(one["flag"]), one["flag"]) for one in seen} == {(bool, True), (int, 1), (type(None), None)}
    assert {one["depth"] for one in seen} == {1, 2, 3}


def test_an_engine_decides_the_same_after_a_restart() -> None:
    engine = PopulationEngine(search(), JOB)
    first = [engine.ask(number) for number in range(4)]
    assert all(one is not None and one.until == 2 and one.source is None for one in first)
    assert engine.ask(4) is None
    known = [ended(number, value) for number, value in enumerate((0.4, 0.1, 0.3, 0.2))]
    for trial in known:
        engine.tell(trial)
    second = [engine.ask(number) for number in range(4, 8)]
    assert [one.source for one in second if one] == [
        Source(1, 2),  # the weakest continues from the best
        *(Source(number, 2) for number in (1, 2, 3)),
    ]
    assert second[0] is not None
    assert second[0].parameters != known[0].parameters
    assert second[0].parameters != known[1].parameters
    assert second[2] is not None
    assert second[2].parameters == known[2].parameters
    assert [one.until for one in second if one] == [4] * 4
    again = PopulationEngine(search(), JOB)
    for trial in known:
        again.learn(trial)
    assert again.sources() == {1, 2, 3, 4, 5, 6, 7}, "nothing continues from the weakest"
    again.learn(Trial(4, "r-t4", {"rate": 0.1}, source=Source(1, 2), until=4))  # still runs
    assert [again.ask(number) for number in range(5, 8)] == second[1:]
    assert again.ask(8) is None
    for number in range(4, 8):
        assert len(again.sources()) == 4 + min(3, 8 - number), "a trial that has begun may have no copy yet"
        again.tell(ended(number, 0.1 * number, Source(number - 4, 2)))
    last = again.ask(8)
    assert last is not None
    assert last.until == 5, "not more than max_t"


def test_trials_that_diverge_or_end_by_themselves() -> None:
    engine = PopulationEngine(search(), JOB)
    for trial in (
        ended(0, None),  # its last value is not finite
        ended(1, 0.2),
        ended(2, 0.1, paused=False),
        ended(3, None, paused=False),  # it has raised an error
    ):
        engine.tell(trial)
    found = [engine.ask(number) for number in (4, 5, 6)]
    assert [one.source for one in found if one] == [Source(1, 2)] * 3
    for number in (4, 5, 6):
        engine.tell(ended(number, 0.1, Source(1, 2), paused=False))
    assert engine.exhausted() is None
    assert engine.ask(7) is None
    assert engine.exhausted() == ""


def test_a_population_ends_when_all_its_trials_have_diverged_or_failed() -> None:
    engine = PopulationEngine(search(), JOB)
    for number in range(4):
        engine.tell(ended(number, None))
    assert engine.ask(4) is None
    assert engine.exhausted() == ""
    engine = PopulationEngine(search(), JOB)
    for number, value in enumerate((0.4, 0.1, 0.3, 0.2)):
        engine.tell(ended(number, value))
    for number, source in enumerate((1, 1, 2, 3), 4):
        engine.tell(ended(number, None, Source(source, 2), paused=False))
    assert engine.sources() == {1, 2, 3, 4, 5, 6, 7}, "the failed trials have saved nothing"
    assert engine.exhausted() == ""


def start(source: str, **more: Any) -> jupyter_dist.Run:
    return start_cell(source, {}, make_plan({**ASKED, **more}), Origin("In[1]", Path.cwd()))


def history(run: jupyter_dist.Run, number: int) -> list[float]:
    """Return the rate of each epoch, from the checkpoint of a trial."""
    place = RunFolder(run.folder.path.parent / f"{run.id}-t{number}")
    weight, seen = json.loads((place.checkpoints / "weights.json").read_text())
    assert weight == pytest.approx(math.prod(1 - rate for rate in seen))
    return list(seen)


def check_population(run: jupyter_dist.Run) -> None:
    """Check that trials continue from the checkpoints of better ones, epoch by epoch."""
    assert run.state == "succeeded", story(run)
    found = trials.read(run.folder).trials
    assert [trial.before for trial in found] == [0] * 4 + [2] * 4 + [4] * 4
    assert {trial.state for trial in found} == {"succeeded"}, story(run)
    for trial in found:
        assert len(trial.steps) == 2
        if trial.source is None:
            continue
        donor = found[trial.source.trial]
        if donor.number != trial.number - 4:
            own = found[trial.number - 4]
            assert donor.value is not None
            assert own.value is not None
            assert donor.value < own.value
            assert trial.parameters != donor.parameters
        else:
            assert trial.parameters == donor.parameters
        if trial.before == 4:
            assert donor.source is not None
            chain = (found[donor.source.trial], donor, trial)
            rates = [one.parameters["rate"] for one in chain for _ in range(2)]
            assert history(run, trial.number) == rates
    for before in (2, 4):
        exploited = [one for one in found if one.before == before]
        assert sum(one.source != Source(one.number - 4, before) for one in exploited) == 1
    best = run.best
    assert best.job.trial is not None
    assert best.job.trial["number"] >= 8
    assert run.trials["value"].min() == found[best.job.trial["number"]].value
    assert best.job.trial["source"]["values"] == 4
    table = run.trials
    assert table["from_iteration"].tolist() == [0] * 4 + [2] * 4 + [4] * 4
    assert table["from_trial"].isna().sum() == 4
    told = run._repr_mimebundle_()["text/plain"]
    assert f"trial {best.job.trial['source']['trial']} at 4 values" in told
    sources = [one.get("source") for one in queries.run(run.id)["tuning"]["trials"]]
    assert sources[:4] == [None] * 4
    assert sources[11] == {"trial": table["from_trial"][11], "values": 4}


TWO: Mapping[str, Any] = {"np": 1, "max_jobs": 2, "scheduler": "pbt(perturbation_interval=2,max_t=4)"}


def check_two(run: jupyter_dist.Run) -> None:
    """Check that the second segments of both trials continue from the checkpoint of the better first one."""
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    first = trials.read(run.folder).trials[:2]
    strong = min(first, key=lambda trial: trial.value or math.inf)
    assert run.trials["from_trial"].tolist()[2:] == [strong.number] * 2
    for trial in trials.read(run.folder).trials[2:]:
        rates = (strong.parameters["rate"], trial.parameters["rate"])
        assert history(run, trial.number) == [rate for rate in rates for _ in range(2)]


def test_checkpoints_travel_to_hosts(hosts: Hosts) -> None:
    there = {"hosts": "h1:1", "ssh_config": str(hosts.ssh_config), "python": sys.executable}
    check_two(start(LEARNS, backend="ssh", **there, **TWO))


@pytest.mark.needs("ray")
def test_trials_share_a_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise Ray writes a token into the home folder, and another test's Ray may do so at the same moment.
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    run = start(LEARNS, backend="ray", address="local", gpus_per_worker=0, **TWO)
    check_two(run)
    assert len({reader.job(one).options["address"] for one in trials_of(run.folder)}) == 1


def test_diverged_and_failed_trials_are_replaced() -> None:
    """The first three trials do not end the tuning run."""
    fails = """
import os
number = int(os.environ["JUPYTER_DIST_RUN"].rpartition("-t")[2])
if number < 2:
    weight = float("nan")
elif number == 2:
    raise ValueError("no luck")
for epoch in"""
    cell = LEARNS.replace("\nfor epoch in", fails, 1)
    run = start(cell, np=1, scheduler="pbt(perturbation_interval=2,max_t=4)")
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    assert run.trials["state"].tolist() == ["failed"] * 3 + ["succeeded"] * 5, story(run)
    assert run.trials["from_trial"].tolist()[4:] == [3] * 4


def test_weak_trials_continue_from_the_weights_of_strong_ones(
    tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    """Also if the supervisor dies while the second segment runs: the trials are those of another run then.

    Meanwhile one of its paused trials ends by itself, and the other one loses its own supervisor.
    """
    undisturbed = start(LEARNS)
    wait_for_end(undisturbed)
    check_population(undisturbed)
    for number in range(8):
        place = RunFolder(undisturbed.folder.path.parent / f"{undisturbed.id}-t{number}")
        assert not place.checkpoints.exists(), "the next segment has copied them"
        assert reader.status(place).reason == f"the trial has reached {2 if number < 4 else 4} values"
    go, loser = tmp_path / "go", tmp_path / "loser"
    waits = f"""
import os, pathlib, time
import jupyter_dist.worker.api.trial_pause
if dist.rank() == 0 and len(seen) == 2:
    try:
        os.symlink(str(os.getpid()), {str(loser)!r})
    except FileExistsError:
        jupyter_dist.worker.api.trial_pause.LIMIT_S = 0.5
while dist.rank() == 0 and len(seen) >= 2 and not pathlib.Path({str(go)!r}).exists():
    time.sleep(0.02)
for epoch in"""
    run = start(LEARNS.replace("\nfor epoch in", waits, 1))
    second = RunFolder(run.folder.path.parent / f"{run.id}-t5")
    wait_for(lambda: second.state.exists(), "the second segment")
    assert run.status.supervisor is not None
    carrier = carrier_of(run.folder)
    os.kill(run.status.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: run.state == "unwatched")
    wait_for(lambda: reader.start_ticks(carrier) is None, "the end of the process that stops paused trials")
    go.touch()
    paused = [RunFolder(second.path.parent / f"{run.id}-t{number}") for number in (4, 5)]

    def losers() -> list[RunFolder]:
        pid = os.readlink(loser) if loser.is_symlink() else ""
        return [one for one in paused if [str(rank.pid) for rank in reader.status(one).ranks[:1]] == [pid]]

    (lost,) = wait_for(losers, "the trial that loses its supervisor")
    wait_for(lambda: len(metrics.points(lost)) == 2, "its pause")
    supervisor = reader.status(lost).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(
        lambda: {reader.status(one).state for one in paused} == {State.FAILED, State.LOST},
        "the end of paused trials",
    )
    wait_for_end(run)
    check_population(run)
    assert undisturbed.trials["rate"].tolist() == run.trials["rate"].tolist()
    assert undisturbed.trials["from_trial"].equals(run.trials["from_trial"])


def test_a_cell_without_checkpoints_gets_one_note() -> None:
    run = start("import jupyter_dist as dist\nfor _ in range(9): dist.log(loss=rate)", np=1)
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    noted = run.trials["reason"].dropna().tolist()
    assert len(noted) == 1, noted
    assert noted[0].startswith("it has saved no checkpoint in dist.checkpoint_dir() before it logged")


def test_a_condition_ends_a_trial_that_would_be_paused() -> None:
    """The condition is true at the last value of a segment."""
    run = start(LEARNS, np=1, stop_when="training_iteration>=4")
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    assert run.trials["from_iteration"].tolist() == [0] * 4 + [2] * 4
    often = "pbt(perturbation_interval=1,max_t=3)"
    met = start(LEARNS, np=1, stop_when="loss<=1", max_jobs=2, scheduler=often)
    wait_for_end(met)
    assert met.trials["state"].tolist() == ["succeeded"] * 2, story(met)


def test_a_cell_with_less_work_than_max_t_says_so() -> None:
    run = start(LEARNS.replace("100", "4"), np=1, max_jobs=2)
    wait_for_end(run)
    assert run.trials["state"].tolist() == ["succeeded"] * 4 + ["failed"] * 2, story(run)
    reason = run.trials["reason"].tolist()[5]
    assert "It continues a trial after 4 values. If the cell has nothing left to do then" in reason
