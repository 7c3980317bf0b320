"""The backend `sagemaker` on training jobs that really run, and where something is wrong with them."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import signal
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import start
from jupyter_dist.backends import platform_job
from jupyter_dist.backends.sagemaker.backend import SageMaker
from jupyter_dist.backends.sagemaker.options import SageMakerOptions
from jupyter_dist.conformance import Target
from jupyter_dist.conformance.run_control import Runs, story, wait_until
from jupyter_dist.errors import DistError, LaunchError, Unreachable
from jupyter_dist.folder import write_json
from jupyter_dist.hosts.links.mailbox import run_key
from jupyter_dist.job import State
from jupyter_dist.manage import run_model
from jupyter_dist.showing import run as showing
from jupyter_dist.supervise import supervisor
from tests.rigs.run_maker import RunMaker
from tests.rigs.sagemaker import Job, SageMakerPlane
from tests.rigs.sagemaker.fixtures import GIVEN, job_of, kept_plane, plane, runs, signed_in, until  # noqa: F401

pytestmark = [
    pytest.mark.needs("boto3", "moto"),
    pytest.mark.xdist_group("sagemaker"),  # they share its hosts
]

BUCKET = "sagemaker-us-east-1-123456789012"
TRAIN = """
import time
print("up", flush=True)
for step in range(10_000):
    time.sleep(0.02)
"""


def made(root: Path, **given: Any) -> RunMaker:
    """A run's folder, for calls of the backend in this process."""
    options = SageMakerOptions(**{**GIVEN, **given}).model_dump(mode="json")
    run = RunMaker(root, 1, options=options, began=time.time())
    run.job = dataclasses.replace(run.job, backend="sagemaker")
    write_json(run.folder.job, run.job.to_json())
    run.folder.payload.write_bytes(b"payload")
    return run


LATE_S = 60


@pytest.fixture(scope="module")
def late_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SageMakerPlane, showing.Run]]:
    """A run whose mailbox gets a minute late in its midst, while the other tests go on.

    Its plane is its own: no other test's faults happen to it.
    """
    cell = """
import time
print("up", flush=True)
for n in range(100):
    print("line", n, flush=True)
    time.sleep(0.1)
n
"""
    root = tmp_path_factory.mktemp("late")
    with SageMakerPlane(tmp_path_factory.mktemp("late-plane")) as plane:
        made = Runs(Target("sagemaker", flags=GIVEN, startup_s=20.0, lives=plane.lives), root)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in plane.environment.items():
                patch.setenv(name, value)
            run = made.start(cell, np=1)
        made.until_up(run)
        plane.delay(f"{run.id}/(up|down)/", LATE_S)
        yield plane, run
        made.close()


def test_a_run_goes_on_beside_others(late_run: tuple[SageMakerPlane, showing.Run]) -> None:
    """The last test of this module tells what has become of it."""
    assert late_run[1].state is State.RUNNING


def test_two_instances_train_one_model(plane: SageMakerPlane, runs: Runs) -> None:
    """Ranks on both, an input that is shared out, results, and what is left when all is over."""
    plane.s3.create_bucket(Bucket="data")
    for number in range(4):
        plane.s3.put_object(Bucket="data", Key=f"train/{number}.txt", Body=str(number).encode())
    cell = """
import os, torch, torch.distributed as group, jupyter_dist as dist
dist.init()
total = torch.ones(1) * (dist.rank() + 1)
group.all_reduce(total)
folder = os.environ["SM_CHANNEL_TRAINING"]
print("I am rank", dist.rank(), flush=True)
dist.log(loss=dist.rank() / 4)
if dist.rank() == 0:
    (dist.model_dir() / "weights.txt").write_text(str(total.item()))
(os.uname().nodename, total.item(), sorted(os.listdir(folder)), "JUPYTER_DIST_MAILBOX_KEY" in os.environ)
"""
    given = {"training": "s3://data/train,distribution=ShardedByS3Key"}
    listed: dict[str, Any] = {"experiment": "vision", "hyperparameters": {"lr": "0.1", "state": "warm"}}
    run = runs.finish(cell, np=4, instance_count=2, input=given, **listed)
    assert run.state is State.SUCCEEDED, story(run) + str(job_of(plane, run).lines)
    shards = {"algo-1": ["0.txt", "2.txt"], "algo-2": ["1.txt", "3.txt"]}
    assert run.results == [(host, 10.0, shards[host], False) for host in ("algo-1",) * 2 + ("algo-2",) * 2]
    job = job_of(plane, run)
    until(lambda: not job.active, "the job's end")
    assert job.status == "Completed"
    assert [name for name in plane.names() if run.id in name and "/output/" not in name] == []
    for rank, host in enumerate(("algo-1", "algo-1", "algo-2", "algo-2")):
        shown = {line for line in job.lines[host] if line.startswith(f"[{rank}]")}
        assert shown == {f"[{rank}] I am rank {rank}", f"[{rank}] loss={rank / 4}"}, "readable in CloudWatch"
    log = (run.folder.path / "supervisor.log").read_text()
    assert f"job {job.name}: https://us-east-1.console.aws.amazon.com" in log
    assert (run.model / "weights.txt").read_text() == "10.0"
    assert run.model == run.folder.path / "model", "fetched once"
    assert not [each for each in run.folder.path.iterdir() if each.name.startswith(".model")]
    _has_entry(plane, run, job)
    told = [path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file()]
    assert not any(b"secret-of-ada" in text for text in told), "no secret in the run's folder"


def _has_entry(plane: SageMakerPlane, run: showing.Run, job: Job) -> None:
    """Of the run in the experiment, with what it was given, has logged and has left."""
    import boto3

    client = boto3.client("sagemaker", endpoint_url=plane.url, region_name=plane.region)
    name, trial = f"vision-{run.id}", "Default-Run-Group-vision"
    told = {"ExperimentName": "vision", "TrialName": trial, "RunName": name}
    assert job.request["ExperimentConfig"] == told
    [listed] = client.list_trials(ExperimentName="vision")["TrialSummaries"]
    assert listed["TrialName"] == trial
    entry = client.describe_trial_component(TrialComponentName=name)
    assert entry["Status"]["PrimaryStatus"] == "Completed"
    given = {"lr": {"NumberValue": 0.1}, "state": {"StringValue": "warm"}, "np": {"NumberValue": 4.0}}
    assert given.items() <= entry["Parameters"].items()
    assert entry["InputArtifacts"]["training"]["Value"] == "s3://data/train"
    assert entry["OutputArtifacts"]["SageMaker.ModelArtifact"]["Value"] == job.output("model.tar.gz")
    assert f"in experiment 'vision' as {name}" in str(run.status.told)
    assert any(each.startswith("PUT /BatchPutMetrics") for each in plane.requests)
    arns = {one["Source"]["SourceUri"]: arn for arn, one in plane.artifacts.items()}
    own = entry["TrialComponentArn"]
    assert set(plane.associations) == {
        (arns["s3://data/train"], "ContributedTo", own),
        (own, "Produced", arns[job.output("model.tar.gz")]),
    }
    table = run.experiment.set_index("component").loc[name]
    assert (table["state"], table["state_"]) == ("Completed", "warm"), "a parameter hides no column"
    assert (table["lr"], table["loss"]) == (0.1, 0.0)
    assert table["training"] == "s3://data/train"
    assert (table["ended"] - table["started"]).total_seconds() > 0


def test_a_submission_is_found_again_and_never_doubled(plane: SageMakerPlane, tmp_path: Path) -> None:
    """Also where the driver was killed in the midst of it."""
    run = made(tmp_path)
    handle = SageMaker().submit(run.job, run.folder, 0)
    name = handle["training_job"]["name"]
    again = SageMaker().find(run.job, run.folder, 0)
    assert again is not None
    assert again["training_job"]["name"] == name
    assert SageMaker().submit(run.job, run.folder, 0)["training_job"]["name"] == name
    assert [each for each in plane.jobs if run.folder.id in each] == [name]
    assert run_key(run.folder).hex() not in json.dumps(handle)
    SageMaker().release(run.job, run.folder, handle)
    until(lambda: not plane.jobs[name].active, "the job's end")
    assert plane.jobs[name].status == "Stopped"
    assert SageMaker().find(run.job, run.folder, 0) is None
    assert [each for each in plane.names() if each.startswith(f"jupyter-dist/{run.folder.id}/")] == []


def test_a_driver_that_is_killed_while_it_starts_a_job(plane: SageMakerPlane, runs: Runs) -> None:
    """Nobody has told it that there is one. It is found all the same, once its user has signed in again."""
    cell = 'for n in range(100): print("line", n, flush=True)'
    with plane.hold("CreateTrainingJob") as reached:
        run = runs.start(cell, np=1)
        until(reached.is_set, "the call")
        supervisor = run.status.supervisor
        assert supervisor is not None
        os.kill(supervisor.pid, signal.SIGKILL)
        wait_until(lambda: run.state is State.UNWATCHED, "that nobody watches it", run)
    plane.fail("^(Describe|Create)| as ada", 400, "ExpiredToken", "The provided token has expired")
    with runs.here():
        start.attach(run.id)
    wait_until(lambda: "AWS knows no such user now" in str(run.status.reason), "the reason", run)
    plane.heal()
    runs.wait(run)
    assert run.state is State.SUCCEEDED, story(run)
    assert run.log(0).split("\n")[:-1] == [f"line {n}" for n in range(100)]
    assert [name for name in plane.jobs if run.id in name] == [f"jupyter-dist-{run.id}-0"]


def test_a_driver_whose_sign_in_has_expired_forgets_no_job(plane: SageMakerPlane, tmp_path: Path) -> None:
    run = made(tmp_path)
    handle = SageMaker().submit(run.job, run.folder, 0)
    plane.fail("Describe", 400, "ExpiredTokenException", "The token is expired")
    with pytest.raises(Unreachable, match="AWS knows no such user now"):
        SageMaker().find(run.job, run.folder, 0)
    plane.heal()
    assert SageMaker().find(run.job, run.folder, 0) is not None
    SageMaker().release(run.job, run.folder, handle)


def test_a_job_is_ended_once_its_user_has_signed_in_again(
    plane: SageMakerPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the time that a supervisor has for it."""
    monkeypatch.setattr(platform_job, "_HOSTS_S", 0.5)
    run, told = made(tmp_path), []
    backend = SageMaker()
    handle = backend.submit(run.job, run.folder, 0)
    plane.fail("Describe|Stop| as ada", 400, "ExpiredTokenException", "The token is expired")
    asked = len(plane.requests)
    release = threading.Thread(target=lambda: told.append(backend.release(run.job, run.folder, handle)))
    release.start()
    until(lambda: plane.requests[asked:].count("DescribeTrainingJob") > 1, "a second try")
    plane.heal()
    release.join(60)
    assert plane.jobs[handle["training_job"]["name"]].asked.is_set(), "not forgotten"
    assert "may go on" not in str(told)


def test_a_job_that_cannot_be_ended_is_told_of(
    plane: SageMakerPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that ends it."""
    monkeypatch.setattr(platform_job, "_HOSTS_S", 0.5)
    monkeypatch.setattr(platform_job, "_TRIES_S", 0.5)
    backend, run = SageMaker(), made(tmp_path)
    handle = backend.submit(run.job, run.folder, 0)
    name = handle["training_job"]["name"]
    plane.fail("Describe|Stop", 400, "ExpiredTokenException", "The token is expired")
    told = str(backend.release(run.job, run.folder, handle))
    assert f"job {name} may still be running and cost money: cannot stop the training job" in told
    command = f"aws sagemaker stop-training-job --training-job-name {name} --region us-east-1"
    assert f"To end it, in a terminal: {command}; see https://" in told
    plane.heal()
    SageMaker().release(run.job, run.folder, handle)


@pytest.mark.parametrize(("hosts_s", "busy"), [(20.0, False), (0.5, True)])
def test_a_job_is_ended_in_time_though_nothing_else_gets_done(
    plane: SageMakerPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts_s: float, *, busy: bool
) -> None:
    """Mpirun's toolkit would be waited for; or S3 does not answer, so that its hosts are not released."""
    monkeypatch.setattr(platform_job, "_HOSTS_S", hosts_s)
    monkeypatch.setattr(platform_job, "_STOP_S", 2.0)
    monkeypatch.setattr(platform_job, "_RELEASE_S", 8.0)
    backend, run = SageMaker(), made(tmp_path, distribution="mpi")
    handle = backend.submit(run.job, run.folder, 0)
    job = plane.jobs[handle["training_job"]["name"]]
    backend._served = True  # as if its ranks had run
    if busy:
        plane.fail(" as ada", 503, "SlowDown")
    backend.release(run.job, run.folder, handle)
    assert job.asked.is_set(), "not forgotten"


def test_a_job_is_told_to_end_though_nobody_can_look_after_it(
    plane: SageMakerPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was told, and what is not known, is said."""
    monkeypatch.setattr(platform_job, "_HOSTS_S", 0.5)
    backend, run = SageMaker(), made(tmp_path)
    handle = backend.submit(run.job, run.folder, 0)
    name = handle["training_job"]["name"]
    plane.fail("Describe", 400, "AccessDeniedException", "no longer")
    told = str(backend.release(run.job, run.folder, handle))
    assert f"job {name} was asked to end; cannot look after the training job" in told
    assert plane.jobs[name].asked.is_set()
    plane.heal()


def test_a_release_fits_into_the_time_of_a_supervisor() -> None:
    limits = platform_job._HOSTS_S, platform_job._STOP_S, platform_job._TRIES_S, platform_job._RELEASE_S
    assert list(limits) == sorted(limits)
    assert limits[-1] < supervisor._RELEASE_LIMIT_S


@pytest.mark.parametrize(
    ("pattern", "status", "code", "message", "kind", "said"),
    [
        (
            "CreateTraining",
            400,
            "ThrottlingException",
            "Rate exceeded",
            Unreachable,
            "does not start a training",
        ),
        ("DescribeTraining", 400, "ThrottlingException", "Rate exceeded", Unreachable, "does not look after"),
        (
            "PUT .*/code/",
            503,
            "SlowDown",
            "Reduce",
            Unreachable,
            "does not write to s3://sagemaker-us-east-1",
        ),
        (
            "CreateTraining",
            400,
            "ExpiredTokenException",
            "The security token is expired",
            LaunchError,
            "aws sso lo",
        ),
        (
            "CreateTraining",
            400,
            "ResourceLimitExceeded",
            "limit 'ml.c5.xlarge' is 0",
            LaunchError,
            "Service Quotas",
        ),
        (
            "CreateTraining",
            400,
            "AccessDeniedException",
            "User: arn:aws:iam::1:user/ada is not authorized to perform: iam:PassRole on resource: "
            "arn:aws:iam::123456789012:role/Train because no identity-based policy allows it",
            LaunchError,
            r'it is not allowed .*"Action": "iam:PassRole", "Resource": "arn:aws:iam::123456789012:role/Tr',
        ),
        ("PUT .*/code/", 403, "AccessDenied", "Access Denied", LaunchError, '"Action": "s3:PutObject"'),
    ],
)
def test_a_submission_that_is_refused(
    plane: SageMakerPlane,
    tmp_path: Path,
    pattern: str,
    status: int,
    code: str,
    message: str,
    kind: type[DistError],
    said: str,
) -> None:
    run, before = made(tmp_path), set(plane.jobs)
    plane.fail(pattern, status, code, message)
    with pytest.raises(kind, match=said) as raised:
        SageMaker().submit(run.job, run.folder, 0)
    assert "secret-of-ada" not in str(raised.value)
    assert set(plane.jobs) == before


def test_throttling_and_a_sign_in_that_expires_are_lived_through(plane: SageMakerPlane, runs: Runs) -> None:
    cell = """
import time
print("up", flush=True)
for n in range(400):
    print("line", n, flush=True)
    time.sleep(0.02)
"""
    plane.fail("CreateTraining", 400, "ThrottlingException", times=4)
    run = runs.start(cell, np=1)
    runs.until_up(run)
    plane.fail("GET|PUT|Describe", 400, "ExpiredToken", "The provided token has expired")
    wait_until(lambda: "AWS knows no such user now" in str(run.status.reason), "the reason", run)
    assert job_of(plane, run).active
    plane.heal()
    runs.wait(run)
    assert run.state is State.SUCCEEDED
    assert re.findall(r"^line (\d+)$", run.log(0), re.MULTILINE) == [str(n) for n in range(400)]


def test_a_model_that_is_none(plane: SageMakerPlane, tmp_path: Path) -> None:
    """Or that would write elsewhere; or whose job nobody knows."""
    run = made(tmp_path)
    handle = SageMaker().submit(run.job, run.folder, 0)
    name = handle["training_job"]["name"]
    SageMaker().release(run.job, run.folder, handle)
    until(lambda: not plane.jobs[name].active, "the job's end")
    with pytest.raises(DistError, match=r"is still running\. Its model is ready when it has ended"):
        run_model.model(run.folder)
    run.end()
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../outside"))
    key = f"{name}/output/model.tar.gz"
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w:gz").close()
    plane.s3.put_object(Bucket=BUCKET, Key=key, Body=empty.getvalue())
    with pytest.raises(DistError, match=r"has no model, because no rank saved a file in dist.model_dir\(\)"):
        run_model.model(run.folder)
    plane.s3.put_object(Bucket=BUCKET, Key=key, Body=plain.getvalue())
    with pytest.raises(DistError, match=f"{name}/output/model.tar.gz cannot be unpacked, and was not"):
        run_model.model(run.folder)
    assert not (run.folder.path / "outside").exists()
    plane.s3.delete_object(Bucket=BUCKET, Key=key)
    with pytest.raises(DistError, match="the job has written no model, or it was removed since"):
        run_model.model(run.folder)
    other = made(tmp_path)
    other.end()
    with pytest.raises(DistError, match=r"the training job jupyter-dist-.* no longer exists"):
        run_model.model(other.folder)


CALLS = {
    "HEAD /sagemaker-": 503,
    "PUT /sagemaker-[^ ]*/code/": 503,
    "PUT /sagemaker-[^ ]*/files/": 503,
    "PUT /sagemaker-[^ ]*/down/": 503,
    "PUT /sagemaker-[^ ]*/up/": 503,
    "GET /sagemaker-.*prefix=": 503,
    "GET /sagemaker-[^ ]*/up/": 503,
    "GET /sagemaker-[^ ]*/files/": 503,
    "POST /sagemaker-.*delete": 503,
    "CreateTrainingJob": 400,
    "DescribeTrainingJob": 400,
}


def test_every_call_is_throttled_in_its_turn(plane: SageMakerPlane, runs: Runs, tmp_path: Path) -> None:
    """None of them is the end of the run, nor leaves anything."""
    for pattern, status in CALLS.items():
        code = "SlowDown" if status == 503 else "ThrottlingException"
        plane.fail(pattern, status, code, "Rate exceeded", times=3)
    run = runs.finish("import jupyter_dist as dist\ndist.rank()", np=2, instance_count=2)
    assert run.state is State.SUCCEEDED, story(run)
    assert run.results == [0, 1]
    until(lambda: not job_of(plane, run).active, "the job's end")
    assert [name for name in plane.names() if run.id in name and "/output/" not in name] == []
    assert [fault.pattern for fault in plane.door.faults if fault.times] == []
    plane.heal()
    again = made(tmp_path)
    handle = SageMaker().submit(again.job, again.folder, 0)
    plane.fail("StopTrainingJob|DescribeTrainingJob", 400, "ThrottlingException", "Rate exceeded", times=6)
    SageMaker().release(run.job, run.folder, handle)
    assert plane.jobs[handle["training_job"]["name"]].asked.is_set(), "not forgotten"


def test_there_is_no_capacity(plane: SageMakerPlane, runs: Runs) -> None:
    run = runs.finish("1", np=3, instance_count=3)  # of which the plane has two
    assert run.state is State.FAILED
    assert "CapacityError: Unable to provision requested ML compute capacity" in str(run.status.reason)
    assert "Other instance types or regions may have room, or the same ones later" in str(run.status.reason)


@pytest.mark.parametrize(
    ("pattern", "action"),
    [("GET [^ ]*/code/[0-9a-f]{64} as role", "GetObject"), ("PUT .*as role", "PutObject")],
)
def test_a_role_that_may_not_use_the_mailbox(
    plane: SageMakerPlane, runs: Runs, pattern: str, action: str
) -> None:
    """The hosts cannot tell: SageMaker does, with the statement to add to the role's policy."""
    plane.fail(pattern, 403, "AccessDenied", "Access Denied")
    run = runs.finish("1", np=1)
    assert run.state is State.FAILED
    reason = str(run.status.reason)
    assert f"this host's role is not allowed s3:{action} on arn:aws:s3:::sagemaker-us-east-1-" in reason
    assert '"Resource": ["arn:aws:s3:::sagemaker-us-east-1-123456789012", ' in reason


def test_an_upload_that_is_cut(plane: SageMakerPlane, runs: Runs) -> None:
    """In the midst of an object, from a host: nobody sees half of one, and it is said again."""
    cell = 'for n in range(20_000): print("line", n, "." * 40)'
    plane.cut("PUT /sagemaker-[^ ]*/up/", times=3)
    run = runs.finish(cell, np=1)
    assert run.state is State.SUCCEEDED, story(run)
    assert plane.door.cuts == {"PUT /sagemaker-[^ ]*/up/": 0}, "it was"
    assert run.log(0).split("\n")[:-1] == [f"line {n} {'.' * 40}" for n in range(20_000)]


def test_a_job_that_is_stopped_on_its_page(plane: SageMakerPlane, runs: Runs) -> None:
    run = runs.start(TRAIN, np=1)
    runs.until_up(run)
    pids = [(str(rank.host), int(rank.pid or 0)) for rank in run.status.ranks]
    plane.stop(job_of(plane, run).name)
    runs.wait(run)
    assert run.state is not State.SUCCEEDED
    assert f"job {job_of(plane, run).name} was stopped" in str(run.status.reason)
    runs.gone(*pids)


def test_spot_instances_that_are_taken_away(plane: SageMakerPlane, runs: Runs) -> None:
    """The job gets others, and the cell goes on from its checkpoint there."""
    plane.s3.create_bucket(Bucket="data")
    cell = """
import time, jupyter_dist as dist
kept = dist.checkpoint_dir() / "step"
first = int(kept.read_text()) if kept.exists() else 0
print("up", first, flush=True)
for step in range(first, 1000 if first == 0 else first + 3):
    kept.write_text(str(step + 1))
    time.sleep(0.05)
first > 0
"""
    given: dict[str, Any] = {"spot": True, "checkpoint_s3": "s3://data/checkpoints", "max_restarts": 1}
    run = runs.start(cell, np=1, **given)
    runs.until_up(run)
    job = job_of(plane, run)
    price = f"job {job.name} runs on 1 × ml.c5.xlarge at up to 0.20 USD/h, up to 0.00 USD so far"
    wait_until(lambda: price in str(run.status.reason), "the price", run)
    plane.interrupt(job.name)
    runs.wait(run)
    assert run.state is State.SUCCEEDED, story(run) + str(job.lines)
    assert run.results == [True]
    assert [line for line in job.lines["algo-1"] if line.startswith("[0] up")][:1] == ["[0] up 0"]
    assert len([line for line in job.lines["algo-1"] if line.startswith("[0] up")]) == 2, "each attempt once"
    assert plane.names("data", "checkpoints/") == ["checkpoints/step"]
    until(lambda: not job.active, "the job's end")
    assert [each["Status"] for each in job.transitions].count("Training") == 2
    log = (run.folder.path / "supervisor.log").read_text()
    assert "its spot instances were taken away" in log
    assert "% saved by spot instances" in str(run.status.told)
    assert re.search(
        r"Interrupted .*, Restarting .*, Training .*; billed \d+ s of 1 × ml.c5.xlarge", str(run.status.told)
    )
    assert "; see https://us-east-1.console.aws.amazon.com" in str(run.status.told)

    assert "70 % saved by spot instances" in log or "saved by spot instances" in log


def test_a_mailbox_that_is_a_minute_late(late_run: tuple[SageMakerPlane, showing.Run]) -> None:
    """All comes in the end, once and in order, and the job is ended, which hears of that a minute later."""
    plane, run = late_run
    until(lambda: run.status.state.ended, "its end")
    assert run.state is State.SUCCEEDED, story(run)
    assert run.results == [99]
    assert run.log(0).split("\n")[:-1] == ["up", *(f"line {n}" for n in range(100))]
    job = job_of(plane, run)
    assert "may go on" not in str(run.status.told)
    until(lambda: not job.active, "the job's end")
    assert job.status == "Stopped"
    assert job.ended is not None
    assert job.ended - job.created > LATE_S


def test_a_job_has_the_chosen_name_if_the_name_is_free(
    plane: SageMakerPlane, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = "import jupyter_dist as dist\n(dist.model_dir() / 'weights').write_text('w')"
    first, second = (runs.finish(cell, np=1, job_name="mnist") for _ in range(2))
    assert plane.jobs["mnist"].status == "Completed", story(first)
    assert plane.jobs[f"mnist-{second.id}-0"].status == "Completed", story(second)
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(first.folder.path.parent))
    assert start.attach("sagemaker:mnist").id == first.id
    assert (run_model.model(first.folder) / "weights").read_text() == "w"
