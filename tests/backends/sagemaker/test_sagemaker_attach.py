"""`%dist attach sagemaker:JOB`: training jobs that others have started, shown as runs."""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.sagemaker.log_owners import Speakers, host_number
from jupyter_dist.conformance.deadlines import wait_until as until
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.errors import DistError, InputError
from jupyter_dist.folder import runs
from jupyter_dist.job import State
from jupyter_dist.record.process_identity import start_ticks
from jupyter_dist.showing.run import Run
from jupyter_dist.start import attach
from tests.rigs.sagemaker import SageMakerPlane

pytestmark = [
    pytest.mark.needs("boto3", "moto"),
    pytest.mark.xdist_group("sagemaker"),  # they share its hosts
]

SCRIPT = """
import os, sys, time
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
def say(text):
    os.write(1, text.encode() + b"\\n")  # in one piece

say(f"rank {rank} begins")
for step in range(int(os.environ.get("STEPS", "40"))):
    say(f"rank {rank} step {step} loss={1 / (step + 1):.4f};")
    time.sleep(0.1)
    while step == 20 and "until_told" in os.environ["SM_HPS"] and not os.path.exists("/tmp/go"):
        time.sleep(0.1)
if os.environ["SM_HPS"].find("boom") > 0:
    sys.exit(3)
open(os.environ["SM_MODEL_DIR"] + "/weights", "w").write("w")
"""
BUCKET = "theirs"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SageMakerPlane]:
    with SageMakerPlane(tmp_path_factory.mktemp("sagemaker"), most_instances=6) as made:
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w:gz") as archive:
            entry = tarfile.TarInfo("train.py")
            entry.size = len(SCRIPT.encode())
            archive.addfile(entry, io.BytesIO(SCRIPT.encode()))
        made.s3.create_bucket(Bucket=BUCKET)
        made.s3.put_object(Bucket=BUCKET, Key="sourcedir.tar.gz", Body=plain.getvalue())
        yield made


@pytest.fixture(autouse=True)
def signed_in(plane: SageMakerPlane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name, value in plane.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(tmp_path / "runs"))
    yield
    plane.heal()
    plane.tuning.reads.set()
    for job in plane.active():
        plane.stop(job.name)
    until(lambda: not plane.active(), "all jobs to end")
    for run in map(Run, runs()):
        wait_for_end(run)


def start(plane: SageMakerPlane, name: str, hosts: int = 1, **more: Any) -> None:
    """As somebody else does it, with the SDK."""
    plane.answer("CreateTrainingJob", asked_for(plane, name, hosts, **more))


def asked_for(plane: SageMakerPlane, name: str, hosts: int = 1, **more: Any) -> dict[str, Any]:
    parameters = {
        "sagemaker_program": "train.py",
        "sagemaker_submit_directory": f"s3://{BUCKET}/sourcedir.tar.gz",
    }
    resources = {"InstanceType": "ml.c5.xlarge", "InstanceCount": hosts, "VolumeSizeInGB": 30}
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+);"}, {"Name": "odd", "Regex": "["}]
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "mine:1",
            "TrainingInputMode": "File",
            "MetricDefinitions": metrics,
        },
        "RoleArn": plane.role,
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
        "ResourceConfig": resources,
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "HyperParameters": {key: json.dumps(value) for key, value in {**parameters, **more}.items()},
        "Environment": {"STEPS": "1000" if more.get("long") else "40"},
    }


def test_a_tuning_job_is_shown_with_its_trials(plane: SageMakerPlane) -> None:
    """Nothing of it is a run, and its state, its trials and the best one are the service's."""
    definition = asked_for(plane, "no name")
    del definition["TrainingJobName"]
    definition["StaticHyperParameters"] = definition.pop("HyperParameters")
    definition["HyperParameterTuningResourceConfig"] = definition.pop("ResourceConfig")
    metrics = definition["AlgorithmSpecification"]["MetricDefinitions"]
    definition["AlgorithmSpecification"]["MetricDefinitions"] = metrics[:1]
    ranges = {
        "ContinuousParameterRanges": [
            {"Name": "lr", "MinValue": "0.1", "MaxValue": "0.2", "ScalingType": "Auto"}
        ],
        "IntegerParameterRanges": [],
        "CategoricalParameterRanges": [{"Name": "batch", "Values": ['"32"', '"64"']}],
    }
    config = {
        "Strategy": "Bayesian",
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 2, "MaxParallelTrainingJobs": 2},
        "ParameterRanges": ranges,
    }
    request = {"HyperParameterTuningJobName": "theirs-tuned", "HyperParameterTuningJobConfig": config}
    plane.tuning.reads.clear()
    plane.answer("CreateHyperParameterTuningJob", {**request, "TrainingJobDefinition": definition})
    run = attach("sagemaker:theirs-tuned")
    assert attach("sagemaker:theirs-tuned").id == run.id
    job = plane.tuning.jobs["theirs-tuned"]
    until(lambda: len(job.tried) == 2 and not plane.active(), "the end of the training jobs")
    before = _lists(plane)
    until(lambda: _lists(plane) > before + 1, "a look at their objectives, which nobody has read yet")
    assert list(run.trials["state"]) == ["running"] * 2
    plane.tuning.reads.set()
    wait_for_end(run)
    assert run.state is State.SUCCEEDED, run.status.reason
    table = run.trials
    assert list(table["state"]) == ["succeeded"] * 2
    assert list(table["value"]) == [1 / 40] * 2
    assert list(table["job"]) == list(job.tried)
    assert list(table["run"]) == [None, None]
    assert list(table["lr"]) == [float(values["lr"]) for values in job.tried.values()]
    assert set(table["batch"]) <= {"32", "64"}
    assert 3 < (table["ended"] - table["started"]).dt.total_seconds().min() < 60, "the service's times"
    assert "2 of 2 trials; best loss 0.025: " in run._repr_mimebundle_()["text/plain"]
    with pytest.raises(DistError, match=r"To show it: jupyter_dist.attach\('sagemaker:theirs-tuned-001"):
        _ = run.best
    with pytest.raises(DistError, match="only runs on sagemaker have experiments"):
        _ = run.experiment


def _lists(plane: SageMakerPlane) -> int:
    return plane.requests.count("ListTrainingJobsForHyperParameterTuningJob")


def test_ranks_of_mpi_are_told_apart_and_curves_are_drawn(plane: SageMakerPlane) -> None:
    """Also by another supervisor, with no line twice; and the job's model is fetched."""
    mpi = {"enabled": True, "num_of_processes_per_host": 2, "custom_mpi_options": ""}
    by_mpi = {f"sagemaker_mpi_{name}": value for name, value in mpi.items()}
    start(plane, "theirs-mpi", 2, lr=0.1, until_told=True, **by_mpi)
    run = attach("sagemaker:theirs-mpi")
    assert run.job.world_size == 4
    assert "lr = 0.1" in run.job.source
    until(lambda: "step 5" in run.log(3), f"rank 3's lines: {plane.jobs['theirs-mpi']}")
    price = "job theirs-mpi runs on 2 × ml.c5.xlarge at 0.41 USD/h"
    until(lambda: price in str(run.status.reason), "the price")
    assert run.state is State.RUNNING
    supervisor = run.status.supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    until(lambda: start_ticks(supervisor.pid) != supervisor.start_ticks, "the supervisor's end")
    again = attach("sagemaker:theirs-mpi", region=plane.region)
    assert again.id == run.id
    for each in plane.pool.all:
        for name in each.hosts.names:
            each.hosts.exec(name, ["touch", "/tmp/go"])
    wait_for_end(run)
    assert str(run.state) == "succeeded", run.status.reason
    for rank in range(4):
        lines = [f"rank {rank} step {step} loss={1 / (step + 1):.4f};" for step in range(40)]
        assert run.log(rank).splitlines() == [f"rank {rank} begins", *lines]
    table = run.metrics
    assert sorted(set(table["name"])) == ["loss"]
    assert len(table) == 160
    assert abs(float(table[(table["rank"] == 2)]["value"].iloc[-1]) - 1 / 40) < 1e-4
    hosts = [rank.host for rank in run.status.ranks]
    assert hosts == ["algo-1", "algo-1", "algo-2", "algo-2"]
    assert "Training" in str(run.status.told)
    assert "billed" in str(run.status.told)
    assert (run.model / "weights").read_text() == "w"
    assert [each for each in plane.requests if "Stop" in each] == [], "it is not ours to end"


def _has(run: Run, text: str) -> bool:
    return text in run.log(0)


def test_how_it_ends_elsewhere_and_by_us(plane: SageMakerPlane) -> None:
    start(plane, "theirs-fails", 1, boom=True)
    start(plane, "theirs-long", 1, long=True)
    start(plane, "theirs-other", 1, long=True)
    failing, ours, theirs = (
        attach(f"sagemaker:{name}") for name in ("theirs-fails", "theirs-long", "theirs-other")
    )
    for run in (ours, theirs):
        until(functools.partial(_has, run, "step 2"), "its lines")
    ours.stop()
    plane.stop("theirs-other")
    for run in (failing, ours, theirs):
        wait_for_end(run)
    assert failing.state is State.FAILED
    why = "job theirs-fails has failed: AlgorithmError: ExecuteUserScriptError: ExitCode 3"
    assert why in str(failing.status.reason)
    assert ours.state is State.STOPPED
    assert plane.jobs["theirs-long"].status == "Stopped"
    assert theirs.state is State.STOPPED
    assert "job theirs-other was stopped" in str(theirs.status.reason)


def test_what_cannot_be_attached_to(plane: SageMakerPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DistError, match="cannot look after the training job 'nobody': it is not there"):
        attach("sagemaker:nobody")
    with pytest.raises(
        InputError,
        match="the id of a run, azureml:JOB, kubernetes:KIND/NAME or sagemaker:JOB, got 'mars:job'",
    ):
        attach("mars:job")
    with pytest.raises(
        InputError, match="region works only with a job that jupyter-dist did not start, as in sagemaker:JOB"
    ):
        attach("20260101", region="us-east-1")
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(InputError, match="Add --region, or set AWS_REGION"):
        attach("sagemaker:nobody")


def test_whose_line_it_is() -> None:
    mpi = Speakers.of(
        {
            "ResourceConfig": {"InstanceCount": 2, "InstanceType": "ml.p3.2xlarge"},
            "HyperParameters": {
                "sagemaker_mpi_enabled": "true",
                "sagemaker_mpi_num_of_processes_per_host": "4",
            },
        }
    )
    assert mpi.size == 8
    assert mpi.take_apart(0, "[1,mpirank:5,algo-2]<stdout>:step 1") == [(5, "step 1")]
    assert mpi.take_apart(0, "[1,5]<stderr>:step 1") == [(5, "step 1")]
    assert mpi.take_apart(0, "Warning: algo-2 is known") == [(None, "Warning: algo-2 is known")]
    assert mpi.take_apart(0, "[1,5]<stdout>:step[1,5]<stdout>: 1") == [(5, "step 1")]
    assert mpi.take_apart(0, "[1,5]<stdout>:step[1,2]<stdout>:end") == [(5, "step"), (2, "end")]
    assert (mpi.host_of(3), mpi.host_of(4)) == ("algo-1", "algo-2")
    plain = Speakers.of({"ResourceConfig": {"InstanceCount": 3, "InstanceType": "ml.c5.xlarge"}})
    assert (plain.size, plain.take_apart(2, "[0] x")) == (3, [(2, "[0] x")])
    ours = Speakers.of({"ResourceConfig": {}, "Environment": {"JUPYTER_DIST_MAILBOX_RUN": "r"}})
    assert ours.take_apart(0, "[7] step 1") == [(7, "step 1")]
    assert [host_number(f"job/algo-{n}-1763000000") for n in (1, 12)] == [0, 11]
    assert host_number("job/tensorboard") is None
