"""Tuning jobs: what is asked of SageMaker, and trials that are runs of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.sagemaker.options import SageMakerOptions
from jupyter_dist.backends.sagemaker.request import Asked
from jupyter_dist.backends.sagemaker.tuning.parents import check_parents
from jupyter_dist.backends.sagemaker.tuning.request import (
    check_search,
    objective_regex,
    parameters_of,
    tuning_request,
)
from jupyter_dist.conformance.run_control import Runs, story, wait_until
from jupyter_dist.errors import DistError, InputError
from jupyter_dist.folder import trials_of
from jupyter_dist.job import State
from jupyter_dist.plan.run_plan import make_plan
from jupyter_dist.search.notation import read_dimension
from jupyter_dist.search.spec import Search, WarmStart
from jupyter_dist.showing.run import Run
from jupyter_dist.start import Origin, attach, describe
from tests.rigs.sagemaker import SageMakerPlane, check
from tests.rigs.sagemaker.fixtures import GIVEN, kept_plane, plane, runs, signed_in, until  # noqa: F401
from tests.rigs.sagemaker.tuning import TuningJob

pytestmark = [
    pytest.mark.needs("boto3", "moto"),
    pytest.mark.xdist_group("sagemaker"),  # they share its hosts
]

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "sagemaker_tuners.json").read_text())
CELL = """
import jupyter_dist as dist
import math
loss = abs(math.log10(lr) + 2) + (0.1 if batch == 64 else 0)
for step in range(2):
    dist.log(loss=loss + 1 / (step + 1), unrelated=step)
(lr, batch, dist.model_dir() is not None)
"""


def search_for(tune: dict[str, str], **more: Any) -> Search:
    given = {"goal": "min", "metric": "loss", "max_jobs": 12, "parallel": 4, "strategy": "random", **more}
    return Search(space={name: read_dimension(text) for name, text in tune.items()}, **given)


def test_training_jobs_are_trials(plane: SageMakerPlane, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a run with results and metrics; the service sees the same objective."""
    tune = {"lr": "loguniform(1e-5,1e-1)", "batch": "choice(32,64)"}
    run = runs.finish(
        CELL,
        np=1,
        tune=tune,
        objective="min:loss",
        max_jobs=3,
        parallel=2,
        strategy="random",
        experiment="digits",
    )
    assert run.state is State.SUCCEEDED, story(run)
    _has_entries(run)
    table = run.trials
    assert list(table["state"]) == ["succeeded"] * 3
    best = run.best
    assert best.results[0][0] == table.sort_values("value")["lr"].iloc[0]
    assert best.results[0][1] in (32, 64)
    job = plane.tuning.jobs[f"dist-{run.id}"]
    assert job.status == "Completed"
    assert len(job.tried) == 3
    for trial, (name, values) in enumerate(job.tried.items()):
        assert float(values["lr"]) == table["lr"][trial]
        assert plane.tuning.objective(job, name) == pytest.approx(table["value"][trial])
        assert plane.jobs[name].status == "Completed"
    name = list(job.tried)[1]
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(run.folder.path.parent))
    assert attach(f"sagemaker:{name}").id == f"{run.id}-t1", "whose it is"
    left = [name for name in plane.names() if "-dist-" in name or "/up/" in name or "/down/" in name]
    assert left == [], "what trials have left in S3"


def _has_entries(run: Run) -> None:
    """Of the tuning and of each trial, in the experiment."""
    listed = run.experiment.set_index("component")
    assert sorted(listed.index) == [
        f"digits-{run.id}",
        *(f"digits-{run.id}-t{number}" for number in range(3)),
    ]
    assert set(listed["state"]) == {"Completed"}
    best, tuning = run.trials.sort_values("value").iloc[0], listed.loc[f"digits-{run.id}"]
    assert tuning["objective"] == "min:loss"
    assert tuning["best_lr"] == pytest.approx(best["lr"])
    assert tuning["best_loss"] == pytest.approx(best["value"])
    assert tuning["best_trial"] == best["number"]
    for number, trial in run.trials.iterrows():
        entry = listed.loc[f"digits-{run.id}-t{number}"]
        assert entry["lr"] == pytest.approx(trial["lr"])
        assert entry["loss"] == pytest.approx(trial["value"])
        assert entry["SageMaker.ModelArtifact"].endswith("/output/model.tar.gz")


def test_a_tuning_that_is_stopped_calls_the_service_off(plane: SageMakerPlane, runs: Runs) -> None:
    """And a trial that the service has ended early is one that was pruned."""
    cell = """
import time, jupyter_dist as dist
for step in range(2000):
    dist.log(loss=lr)
    time.sleep(0.05)
"""
    given: dict[str, Any] = {"objective": "min:loss", "max_jobs": 8, "parallel": 2, "early_stopping": True}
    run = runs.start(cell, np=1, tune={"lr": "uniform(0,1)"}, strategy="bayesian", **given)
    until(lambda: len(run.trials) == 2, "two trials")
    job = plane.tuning.jobs[f"dist-{run.id}"]
    first = next(iter(job.tried))
    until(lambda: any("loss=" in line for line in plane.jobs[first].lines.get("algo-1", [])), "its metrics")
    plane.stop(first)
    first_run = Run(trials_of(run.folder)[0])
    wait_until(lambda: list(run.trials["state"])[:1] == ["pruned"], "its end", first_run)
    run.stop()
    runs.wait(run)
    assert run.state is State.STOPPED
    assert job.status in ("Stopping", "Stopped")
    assert set(run.trials["state"]) <= {"pruned", "stopped"}
    assert job.request["HyperParameterTuningJobConfig"]["TrainingJobEarlyStoppingType"] == "Auto"


@pytest.mark.parametrize("name", list(GOLDEN["cases"]))
def test_the_request_is_what_the_sdks_tuner_sends(name: str) -> None:
    """For the same arguments. What differs by design: as in test_sagemaker_request.py, and that ours says
    the job's name in no hyperparameter that the SDK leaves to its `attach`."""
    case = GOLDEN["cases"][name]
    theirs, about = json.loads(json.dumps(case["request"])), dict(case["search"])
    if "parents" in about:
        about["parents"] = tuple(about["parents"])
    if "warm" in about:
        about["warm"] = WarmStart(**about["warm"])
    asked = SageMakerOptions(role=SageMakerPlane.role, **case["options"])
    search = search_for(about.pop("tune"), **about)
    code = "s3://sagemaker-us-east-1-123456789012/jupyter-dist/code/HASH/sourcedir.tar.gz"
    metrics = {"loss": "loss: ([0-9.]+)"}
    sent = Asked("dist-NAME", int(asked.ranks or 1), "us-east-1", "train.py", code, {"A": "b"}, metrics)
    ours = tuning_request(search, asked, sent)
    mine, other = ours["TrainingJobDefinition"], theirs["TrainingJobDefinition"]
    assert mine.pop("Environment") == {"A": "b"}
    static = [
        {key: json.loads(value) for key, value in each.pop("StaticHyperParameters").items()}
        for each in (mine, other)
    ]
    for key in ("sagemaker_estimator_class_name", "sagemaker_estimator_module"):
        static[1].pop(key)
    assert static[0] == static[1]
    ranges = ours["HyperParameterTuningJobConfig"]["ParameterRanges"]
    for kind, each in theirs["HyperParameterTuningJobConfig"]["ParameterRanges"].items():
        assert sorted(ranges[kind], key=_name) == sorted(each, key=_name)
    theirs["HyperParameterTuningJobConfig"]["ParameterRanges"] = ranges
    assert ours == theirs


def _name(about: dict[str, Any]) -> str:
    return str(about["Name"])


def test_what_is_asked_is_what_the_service_takes(plane: SageMakerPlane) -> None:
    asked = SageMakerOptions(**GIVEN)
    sent = Asked("dist-x", 1, "us-east-1", "p.py", "s3://b/c", {"A": "b"})
    tune = {"a": "float(0,1)", "b": "int(1,8)", "c": "choice(sgd,1.5,None)", "d": "quniform(0,1,0.25)"}
    tune |= {"f": "ContinuousParameter(0,.9,scaling_type=ReverseLogarithmic)", "g": "IntegerParameter(1,8)"}
    search = search_for({**tune, "e": "loguniform(1e-5,1)"}, strategy="hyperband", goal="max")
    request = tuning_request(search, asked, sent)
    check(plane.shape("CreateHyperParameterTuningJobRequest"), request)
    ranges = request["HyperParameterTuningJobConfig"]["ParameterRanges"]
    scalings = {
        each["Name"]: each["ScalingType"]
        for kind in ("Continuous", "Integer")
        for each in ranges[f"{kind}ParameterRanges"]
    }
    told = {"a": "Linear", "b": "Linear", "e": "Logarithmic", "f": "ReverseLogarithmic", "g": "Auto"}
    assert scalings == told
    tuned = {"f": "0.8", "g": "7", "a": "0.5", "b": "3", "c": '"sgd"', "d": "0.25", "e": "1e-3"}
    assert parameters_of(search, tuned) == {
        "f": 0.8,
        "g": 7,
        "a": 0.5,
        "b": 3,
        "c": "sgd",
        "d": 0.25,
        "e": 0.001,
    }
    grid = search_for({"a": "int(1,3)", "c": "choice(x,y)"}, strategy="grid", max_jobs=6)
    config = tuning_request(grid, asked, sent)["HyperParameterTuningJobConfig"]
    assert config["ResourceLimits"] == {"MaxNumberOfTrainingJobs": 6, "MaxParallelTrainingJobs": 4}
    assert parameters_of(grid, {"a": "2", "c": '"y"'}) == {"a": 2, "c": "y"}

    found = re.search(objective_regex("val/acc"), "[0] loss=1.5 val/acc=0.25 n=1")
    assert found is not None
    assert found[1] == "0.25"
    assert re.search(objective_regex("train:loss"), "[0] train:loss=0.5") is not None
    for other in ("[0] eval/acc=1.0", "[1] val/acc=1.0"):
        assert re.search(objective_regex("val/acc"), other) is None


@pytest.mark.parametrize(
    ("tune", "options", "more", "said"),
    [
        ("quniform(0,1,0.01)", {}, {}, "has 101 values, but a tuning job allows at most 30"),
        (
            "uniform(0,1)",
            {"hyperparameters": {"x": "1"}},
            {},
            "'x' is set by both --hyperparameters and --tune",
        ),
        ("choice(1,'1')", {}, {}, "two of these values are the same text"),
        (
            "uniform(0,1)",
            {"base_job_name": "mnist"},
            {},
            "--base-job-name works only with training jobs.*Use --job-name",
        ),
        ("uniform(0,1)", {"keep_alive": 600}, {}, "--keep-alive works only with training jobs"),
        ("int(1,20)", {}, {"strategy": "grid"}, "tries the whole grid, which has 20 points"),
        (
            "uniform(0,1)",
            {},
            {"strategy": "hyperband", "early_stopping": True},
            "--strategy hyperband already ends trials early",
        ),
    ],
)
def test_what_cannot_be_searched(tune: str, options: dict[str, Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_search(search_for({"x": tune}, **more), SageMakerOptions(**{**GIVEN, **options}))


def test_a_dry_run_shows_the_tuning_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    given = {"backend": "sagemaker", **GIVEN, "tune": {"x": "uniform(0,1)"}, "objective": "min:loss"}
    told = describe("print(x)", {}, make_plan(given), Origin("In[1]", Path.cwd()))["request"]
    request = told["create_hyper_parameter_tuning_job"]
    assert request["HyperParameterTuningJobConfig"]["ParameterRanges"]["ContinuousParameterRanges"]
    env = request["TrainingJobDefinition"]["Environment"]
    assert env["JUPYTER_DIST_MAILBOX_KEY"] == "<the run's key>"


def test_a_plan_is_refused_before_anything_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    given = {"backend": "sagemaker", **GIVEN, "tune": {"x": "quniform(0,1,0.01)"}, "objective": "min:loss"}
    with pytest.raises(InputError, match="allows at most 30"):
        make_plan(given)


THEIRS = GOLDEN["cases"]["bayesian"]
"""A tuning job of the SDK: lr, momentum, layers, batch and name are tuned."""
FIXED = {"role": SageMakerPlane.role, **THEIRS["options"]}


def described(**more: Any) -> dict[str, Any]:
    """That job as the service describes it when it has ended."""
    request = json.loads(json.dumps(THEIRS["request"]))
    return {**request, "HyperParameterTuningJobStatus": "Completed", **more}


def checked(tune: dict[str, str], *parents: dict[str, Any], **options: Any) -> WarmStart:
    search = search_for(tune, strategy="bayesian", parents=("sagemaker:theirs",) * len(parents))
    asked = SageMakerOptions(**FIXED, **options)
    sent = Asked("dist-NAME", 1, "us-east-1", "train.py", "s3://b/c", {})
    return check_parents(search, tuning_request(search, asked, sent), parents)


def test_a_parent_may_differ_as_the_service_allows() -> None:
    """Other ranges, and fixed and tuned exchanged. What the SDK has fixed for itself is added."""
    tune = {**THEIRS["search"]["tune"], "lr": "uniform(1e-9,1)", "layers": "int(2,64)"}
    del tune["batch"]
    best = {
        "TrainingJobName": "theirs-003",
        "TunedHyperParameters": {"lr": "0.02", "name": '"adam"'},
        "FinalHyperParameterTuningJobObjectiveMetric": {"MetricName": "loss", "Value": 0.25},
    }
    found = checked(tune, described(BestTrainingJob=best), hyperparameters={"batch": "32"})
    assert found.jobs == ("dist-NAME",)
    assert sorted(found.fixed) == ["sagemaker_estimator_class_name", "sagemaker_estimator_module"]
    assert found.best is not None
    assert found.best.job == "sagemaker:theirs-003"
    assert (found.best.value, dict(found.best.parameters)) == (0.25, {"lr": "0.02", "name": "adam"})
    search = search_for(tune, parents=("sagemaker:theirs",), warm=found)
    assert Search.from_json(json.loads(json.dumps(search.to_json()))) == search


@pytest.mark.parametrize(
    ("tune", "options", "more", "said"),
    [
        ({}, {}, {"HyperParameterTuningJobStatus": "InProgress"}, r"has not ended \(InProgress\)"),
        (
            {"batch": ""},
            {},
            {},
            "'batch' is missing in this run.*Add --hyperparameters batch=VALUE to fix it",
        ),
        ({"depth": "int(1,3)"}, {}, {}, "'depth' is new in this run.*Remove depth from --tune"),
        ({"lr": "choice(1,2)"}, {}, {}, "'lr' was continuous in .*, and is categorical now"),
        (
            {},
            {"distribution": "torchrun"},
            {},
            "'sagemaker_instance_type' is new in this run.*the same --distribution",
        ),
        ({}, {}, {"TrainingJobDefinition": None}, "has several algorithms"),
    ],
)
def test_a_parent_that_the_service_refuses(
    tune: dict[str, str], options: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    wanted = {name: text for name, text in {**THEIRS["search"]["tune"], **tune}.items() if text}
    with pytest.raises(InputError, match=said):
        checked(wanted, described(**more), **options)
    with pytest.raises(InputError, match="at most 5 parents, got 6"):
        checked(wanted, *[described()] * 6)


def test_fixed_values_change_as_often_as_the_service_allows() -> None:
    names = [f"n{number}" for number in range(6)]
    parent = described()
    parent["TrainingJobDefinition"]["StaticHyperParameters"] |= dict.fromkeys(names, "1")
    tune = THEIRS["search"]["tune"]
    checked(tune, parent, hyperparameters={**dict.fromkeys(names, "2"), "n5": "1"})
    with pytest.raises(InputError, match=r"6 fixed parameters differ .*n0, n1, .*SageMaker allows 5"):
        checked(tune, parent, hyperparameters=dict.fromkeys(names, "2"))


def test_a_tuning_begins_with_a_run_and_with_what_others_have_started(
    plane: SageMakerPlane, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"objective": "min:loss", "max_jobs": 1, "strategy": "random", "job_name": "mine"}
    cell = "import jupyter_dist as dist\nx, y\ndist.log(loss=x)"
    both = {"x": "uniform(0.5,0.6)", "y": "int(1,3)"}
    first = runs.finish(cell, np=1, tune=both, **given)
    assert first.state is State.SUCCEEDED, story(first)
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(first.folder.path.parent))
    (name,) = plane.tuning.jobs["mine"].tried
    assert list(first.trials["job"]) == [name]
    assert attach(f"sagemaker:{name}").id == f"{first.id}-t0", "whose it is"
    theirs = json.loads(json.dumps(plane.tuning.jobs["mine"].request))
    theirs["HyperParameterTuningJobName"] = "theirs"
    best = {
        "TrainingJobName": "theirs-007",
        "TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/theirs-007",
        "TrainingJobStatus": "Completed",
        "CreationTime": 1e9,
        "TunedHyperParameters": {"x": "0.1", "y": "2"},
        "FinalHyperParameterTuningJobObjectiveMetric": {"MetricName": "loss", "Value": 0.1},
    }
    job = plane.tuning.jobs["theirs"] = TuningJob(theirs, status="InProgress", best=best)
    wider = {"x": "uniform(0.7,0.9)"}
    begun = {**given, "hyperparameters": {"y": "2"}, "tune": wider}
    with pytest.raises(InputError, match="has not ended"):
        _shown(cell, {**begun, "warm_start": "sagemaker:theirs"})
    job.status = "Completed"
    with pytest.raises(InputError, match="'y' is missing in this run"):
        _shown(cell, {**given, "tune": wider, "warm_start": f"{first.id}:identical"})
    both_parents = f"{first.id},sagemaker:theirs:identical"
    request = _shown(cell, {**begun, "warm_start": both_parents})
    parents = [{"HyperParameterTuningJobName": name} for name in ("mine", "theirs")]
    kind = {"WarmStartType": "IdenticalDataAndAlgorithm"}
    assert request["WarmStartConfig"] == {"ParentHyperParameterTuningJobs": parents, **kind}
    second = runs.finish(cell.replace("x, y", "x"), np=1, **begun, warm_start=both_parents)
    assert second.state is State.SUCCEEDED, story(second)
    assert list(plane.tuning.jobs)[-1] == f"dist-{second.id}", "the other name is taken"
    with pytest.raises(DistError, match=r"sagemaker:theirs-007 of a parent, with loss 0\.1: x=0\.1, y=2\. "):
        _ = second.best
    assert "; better in a parent, loss 0.1: x=0.1" in second._repr_mimebundle_()["text/plain"]


def _shown(cell: str, given: dict[str, Any]) -> dict[str, Any]:
    plan = make_plan({"backend": "sagemaker", **GIVEN, **given})
    told = describe(cell, {"y": 2}, plan, Origin("In[1]", Path.cwd()))["request"]
    request: dict[str, Any] = told["create_hyper_parameter_tuning_job"]
    return request
