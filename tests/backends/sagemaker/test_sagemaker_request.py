"""What the backend `sagemaker` would send, and what it refuses before anything costs."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.platform_entrypoint import place_of, whole
from jupyter_dist.backends.sagemaker.account import AwsAccount, needed_statement
from jupyter_dist.backends.sagemaker.backend import SageMaker
from jupyter_dist.backends.sagemaker.billing import bill, so_far
from jupyter_dist.backends.sagemaker.client import code_archive
from jupyter_dist.backends.sagemaker.images import OWN_PYTHON, image_of, python_of
from jupyter_dist.backends.sagemaker.instance_types import cost_line, gpus_of
from jupyter_dist.backends.sagemaker.jobs import end_job, read
from jupyter_dist.backends.sagemaker.options import SageMakerOptions
from jupyter_dist.backends.sagemaker.request import Asked, image_for, training_request
from jupyter_dist.errors import InputError, LaunchError
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.worker.launchers.mpi_slot import LENT, take
from tests.rigs.run_maker import RunMaker
from tests.rigs.sagemaker import check

pytestmark = pytest.mark.needs("boto3")

ROLE = "arn:aws:iam::123456789012:role/Train"
GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "sagemaker_estimators.json").read_text())
BASE = {"role": ROLE, "instance_type": "ml.c5.xlarge", "image": "1.dkr.ecr.us-east-1.amazonaws.com/mine:1"}
LINE = f"--backend sagemaker --role {ROLE} --region us-east-1 --image i:1"


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The developer's own profiles are none of the tests'."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def sent(name: str) -> dict[str, Any]:
    """Our request for the arguments of an estimator."""
    given = dict(GOLDEN["cases"][name]["options"])
    metrics = given.pop("metric", {})
    asked = SageMakerOptions(role=ROLE, **given)
    code = "s3://sagemaker-us-east-1-123456789012/jupyter-dist/code/HASH/sourcedir.tar.gz"
    return training_request(
        asked, Asked("NAME", int(asked.ranks or 1), "us-east-1", "train.py", code, {"A": "b"}, metrics)
    )


@pytest.mark.parametrize("name", list(GOLDEN["cases"]))
def test_the_request_is_what_the_sdks_estimator_sends(name: str) -> None:
    """For the same arguments. What differs by design: `sagemaker_program` is our host program, which is the
    same for every cell; the environment is its own (values of --env go to the ranks by the agents, in no
    request); the SDK's Debugger and Profiler are not asked for."""
    theirs, ours = dict(GOLDEN["cases"][name]["request"]), sent(name)
    for left_out in ("DebugHookConfig", "ProfilerConfig"):
        theirs.pop(left_out, None)
        assert left_out not in ours
    assert ours.pop("Environment") == {"A": "b"}
    numbers = theirs.pop("HyperParameters"), ours.pop("HyperParameters")
    theirs["HyperParameters"], ours["HyperParameters"] = (
        {key: json.loads(value) for key, value in each.items()} for each in numbers
    )
    for each in (theirs, ours):  # the file has the options sorted
        each.get("InputDataConfig", []).sort(key=lambda one: str(one["ChannelName"]))
    assert ours == theirs


@pytest.mark.parametrize("name", list(GOLDEN["cases"]))
def test_aws_takes_the_request(name: str) -> None:
    """By botocore's own model of the service, and its checks."""
    import botocore.session
    from botocore.validate import ParamValidator

    shape = botocore.session.Session().get_service_model("sagemaker").shape_for("CreateTrainingJobRequest")
    request = sent(name)
    report = ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()
    check(shape, request)


def test_a_dry_run_prints_all_that_would_be_sent(tmp_path: Path) -> None:
    options = SageMakerOptions(**BASE, region="us-east-1", instance_count=2, checkpoint_s3="s3://b/c")
    job = RunMaker(tmp_path, 4, options=options.model_dump(mode="json")).job
    told = SageMaker().request(job, 1)
    request = told["create_training_job"]
    assert told["hosts"] == [{"name": "algo-1", "slots": 2}, {"name": "algo-2", "slots": 2}]
    assert told["mailbox"] == "s3://sagemaker-us-east-1-123456789012/jupyter-dist"
    assert request["TrainingJobName"] == f"jupyter-dist-{job.id}-1"
    assert request["Environment"]["JUPYTER_DIST_MAILBOX_RUN"] == job.id
    assert request["Environment"]["JUPYTER_DIST_CHECKPOINTS"] == "/opt/ml/checkpoints"
    assert json.loads(request["HyperParameters"]["sagemaker_program"]) == "jupyter_dist_host.py"
    assert json.loads(json.dumps(told)) == told
    again = SageMaker().request(job, 1)
    assert again == told, "pure"
    named = dataclasses.replace(job, options={**job.options, "base_job_name": "mnist"})
    request = SageMaker().request(named, 1)["create_training_job"]
    assert request["TrainingJobName"] == f"mnist-{job.id}-1", "the SDK has a time in place of the run's id"
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(code_archive()))) as archive:
        assert archive.getnames() == ["jupyter_dist_host.py", "jupyter_dist_courier.py"], "at the top level"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "needs --instance-type"),
        ("--instance-type ml.g5.huge", "this family has ml.g5."),
        (
            "--instance-type ml.c5.xlarge --instance-count 2 -np 3 --distribution mpi",
            "--distribution mpi needs the same number of ranks on each instance, "
            "but 3 is not a multiple of 2. Use -np 4",
        ),
        ("--instance-type ml.c5.xlarge --subnets subnet-1", "--subnets works only with --security-group-ids"),
        (
            "--instance-type ml.c5.xlarge --input training=fsx://fs-01234567/mnt",
            "can use only inside its VPC",
        ),
        ("--instance-type ml.c5.xlarge --input training=/data", "'training' needs s3://BUCKET/PREFIX"),
        ("--instance-type ml.c5.xlarge --input training=s3://b/p,sharded", "'sharded' is none of mode=…"),
        ("--instance-type ml.c5.xlarge --input training=s3://b/p,mode=Fast", "mode is one of File, FastFile"),
        (
            "--instance-type ml.c5.xlarge --max-wait 7200",
            "--max-wait works only with --spot. Remove --max-wait, or add --spot",
        ),
        ("--instance-type ml.c5.xlarge --spot --max-wait 60", "must be at least --max-run (86400 s)"),
        (
            "--instance-type ml.c5.xlarge --spot --keep-alive 10m",
            "--keep-alive cannot be combined with --spot. A warm pool needs instances on demand. Remove one",
        ),
        ("--instance-type ml.c5.xlarge --mpi-options=-verbose", "--mpi-options is for mpirun"),
        ("--instance-type ml.c5.xlarge --distribution smddp", "needs instances with GPUs"),
        ("--instance-type ml.c5.xlarge --hyperparameters sagemaker_program=x", "uses a name of SageMaker"),
        ("--instance-type ml.c5.xlarge --aws-secret-access-key x", "would be readable in the notebook"),
        (
            "--instance-type ml.c5.xlarge --source-dir x",
            "--source-dir is not needed, because the job runs the cell",
        ),
        ("--instance-type ml.c5.xlarge --profile nobody", "there is no profile 'nobody' in ~/.aws"),
        (
            "--instance-type ml.c5.xlarge --trial t",
            "--trial works only with --experiment. Remove --trial, or add --experiment",
        ),
    ],
)
def test_bad_input_is_told_before_anything_is_asked(line: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        make_plan(read_command_line(f"{LINE} {line}").given)


def test_what_has_to_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="needs --role"):
        make_plan({"backend": "sagemaker", "instance_type": "ml.c5.xlarge", "region": "us-east-1"})
    with pytest.raises(
        InputError, match="needs the ARN of a role such as arn:aws:iam::123456789012:role/Train"
    ):
        make_plan({"backend": "sagemaker", "role": "Train"})
    with pytest.raises(InputError, match="needs a region: --region us-east-1, or AWS_REGION"):
        make_plan({"backend": "sagemaker", **BASE})
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert make_plan({"backend": "sagemaker", **BASE}).world_size == 1
    plan = make_plan({"backend": "sagemaker", **BASE, "instance_type": "ml.g5.12xlarge", "instance_count": 2})
    assert plan.world_size == 8, "one rank for each GPU"
    plan = make_plan({"backend": "sagemaker", **BASE, "instance_count": 4, "np": 2})
    assert "2 ranks need only 2 of 4 instances, so only 2 are started" in plan.warnings


def test_the_image_is_found_by_region_and_framework() -> None:
    found = image_of("pytorch", "2.6", "py312", "ml.p4d.24xlarge", "eu-south-1")
    assert found == "692866216735.dkr.ecr.eu-south-1.amazonaws.com/pytorch-training:2.6-gpu-py312"
    assert image_of("tensorflow", "2.19.0", "py312", "ml.c5.xlarge", "cn-north-1").startswith(
        "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/tensorflow-training:2.19.0-cpu-"
    )
    with pytest.raises(InputError, match=r"no container of pytorch 2.6 with py311 in its list. The list has"):
        image_of("pytorch", "2.6", "py311", "ml.c5.xlarge", "us-east-1")
    with pytest.raises(InputError, match=r"for 'mars-1' in its list .*--image"):
        image_of("pytorch", "2.6", "py312", "ml.c5.xlarge", "mars-1")
    asked = SageMakerOptions(**{**BASE, "image": None}, framework="tensorflow", py_version="py311")
    said = (
        r"no container of tensorflow with .*py311\) in its list\. The list has 2.8.0 \(py39\), .* --image\."
    )
    with pytest.raises(InputError, match=said):
        image_for(asked, "us-east-1")
    other = "2.6.0" if sys.version_info[:2] != (3, 12) else "2.5.1"
    given = {**BASE, "image": None, "region": "us-east-1", "framework_version": other}
    with pytest.raises(InputError, match=f"but the notebook has Python {OWN_PYTHON}"):
        SageMaker().check(1, given)


@pytest.mark.parametrize(
    ("framework", "version"),
    [
        ("tensorflow", None),
        ("tensorflow", "2.14"),
        ("tensorflow", "2.9"),
        ("pytorch", "1.13"),
        ("pytorch", "2.0"),
        ("pytorch", "2.8"),
    ],
)
def test_with_the_flag_a_container_may_have_another_python(framework: str, version: str | None) -> None:
    options = {**BASE, "image": None, "region": "us-east-1", "framework": framework, "other_python": True}
    SageMaker().check(1, {**options, "framework_version": version})
    image = image_for(SageMakerOptions(**options, framework_version=version), "us-east-1")
    assert image.endswith(f"-{python_of(framework, image.split(':')[1].split('-')[0])}")


def test_with_the_flag_too_an_old_python_is_refused() -> None:
    given = {**BASE, "image": None, "region": "us-east-1", "framework_version": "2.6.0", "py_version": "py38"}
    with pytest.raises(InputError, match=r"has py38, and ranks need Python 3\.9 or newer"):
        SageMaker().check(1, {**given, "framework": "tensorflow", "other_python": True})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"instance_type": "ml.g5.48xlarge"},
            "does not run on ml.g5.48xlarge. Use --instance-type ml.p3.16xlarge or",
        ),
        (
            {"framework_version": "2.6.0"},
            "no container of pytorch 2.6.0 .* Use --framework-version with 1.13.1 ",
        ),
        (
            {"framework": "tensorflow", "framework_version": "2.12"},
            r"no container of tensorflow 2.12 with Python 3.9 .* Use --framework-version with 2\.8\.0 ",
        ),
        (
            {"framework": "tensorflow", "framework_version": "2.7"},
            "no container of tensorflow 2.7 with Python 3.9",
        ),
        ({"framework": "tensorflow"}, "tensorflow-training:2.11.0-gpu-py39"),
        *(
            ({"framework": "tensorflow", "framework_version": v}, f"tensorflow-training:{v}-gpu-py39")
            for v in ("2.8", "2.9", "2.10", "2.11")
        ),
        ({"framework_version": "1.13"}, "pytorch-training:1.13-gpu-py39"),
        ({"framework_version": "2.2"}, "pytorch-training:2.2-gpu-py310"),
        ({"framework_version": "2.0.1", "py_version": "py310"}, "pytorch-training:2.0.1-gpu-py310"),
        ({"image": "mine:1"}, "mine:1"),
        ({}, "pytorch-training:2.2.0-gpu-py310"),
    ],
)
def test_smddp_is_in_the_containers_that_the_sdk_has_in_its_table(options: dict[str, Any], said: str) -> None:
    given = {"distribution": "smddp", "instance_type": "ml.p4d.24xlarge", "other_python": True}
    given |= {"role": ROLE, "region": "us-east-1", **options}
    if " " in said:
        with pytest.raises(InputError, match=said):
            SageMaker().check(8, given)
        return
    SageMaker().check(8, given)
    image = image_for(SageMakerOptions(**given), "us-east-1")
    assert image.rpartition("/")[2] == said, "the newest of the table, unless a version is named"


def test_what_it_costs_is_told_first_and_what_is_not_known_too() -> None:
    told = cost_line("ml.g5.xlarge", 4, "us-east-1", spot=False, keep_alive_s=0)
    assert told == "4 × ml.g5.xlarge: 5.63 USD/h on demand (list price of 2024 in us-east-1)"
    told = cost_line("ml.g5.xlarge", 4, "eu-west-1", spot=True, keep_alive_s=600)
    assert "at most 5.63 USD/h" in told
    assert "yours in eu-west-1 differs" in told
    assert "kept for 600 s" in told
    assert "the price is not known here" in cost_line("ml.p4d.24xlarge", 1, None, spot=False, keep_alive_s=0)
    assert (gpus_of("ml.p4d.24xlarge"), gpus_of("ml.c5.xlarge"), gpus_of("ml.g9.xlarge")) == (8, 0, None)


@pytest.mark.parametrize(
    ("region", "console"),
    [
        ("eu-west-1", "eu-west-1.console.aws.amazon.com"),
        ("cn-north-1", "cn-north-1.console.amazonaws.cn"),
        ("us-gov-west-1", "console.amazonaws-us-gov.com"),
    ],
)
def test_the_page_of_a_job_is_in_the_console_of_its_partition(region: str, console: str) -> None:
    told = {"TrainingJobName": "j", "TrainingJobStatus": "InProgress"}
    assert read(told, region).page == f"https://{console}/sagemaker/home?region={region}#/jobs/j"


def test_how_a_job_stands() -> None:
    told: dict[str, Any] = {"TrainingJobName": "j", "TrainingJobStatus": "InProgress"}
    assert read({**told, "SecondaryStatus": "Downloading"}, "us-east-1").waits_for == "downloads its inputs"
    history = ["Starting", "Training", "Interrupted", "Restarting", "Starting", "Training", "Interrupted"]
    transitions = [{"Status": each} for each in history]
    assert read({**told, "SecondaryStatusTransitions": transitions}, "us-east-1").interruptions == 2
    assert read({**told, "SecondaryStatusTransitions": transitions[:6]}, "us-east-1").interruptions == 1
    over = {**told, "TrainingJobStatus": "Failed", "SecondaryStatus": "Failed"}
    seen = read(
        {**over, "FailureReason": "CapacityError: Unable to provision requested ML compute capacity."}, "r-1"
    )
    assert "has failed: CapacityError: Unable to provision" in str(seen.ended)
    assert "Other instance types or regions may have room" in str(seen.ended)
    assert not seen.final
    assert read({**over, "FailureReason": "ClientError: Data download failed"}, "r-1").final
    stopped = {**told, "TrainingJobStatus": "Stopped", "SecondaryStatus": "MaxRuntimeExceeded"}
    assert "(--max-run)" in str(read(stopped, "r-1").ended)
    for why, somebody in (("MaxRuntimeExceeded", False), ("Interrupted", False), ("Stopped", True)):
        assert read({**stopped, "SecondaryStatus": why}, "r-1").stopped is somebody, why
    times = {"TrainingTimeInSeconds": 100, "BillableTimeInSeconds": 30, "EnableManagedSpotTraining": True}
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    phases = [("Starting", 0), ("Downloading", 62), ("Training", 70), ("Uploading", 160), ("Completed", 162)]
    spans = [{"Status": name, "StartTime": at + timedelta(seconds=second)} for name, second in phases]
    hosts = {"InstanceCount": 2, "InstanceType": "ml.g5.xlarge"}
    job = {**told, "ResourceConfig": hosts, "TrainingStartTime": at, "EnableManagedSpotTraining": True}
    said = bill(
        read({**job, "TrainingJobStatus": "Completed", "SecondaryStatusTransitions": spans, **times}, "r-1")
    )
    assert said.startswith(
        "job j: Starting 1 min 2 s, Downloading 8.0 s, Training 1 min 30 s, Uploading 2.0 s; "
        "billed 30 s of 2 × ml.g5.xlarge, 70 % saved by spot instances, 0.02 USD (list price); see https://r-1."
    )
    said = so_far(read({**job, "SecondaryStatus": "Training"}, "r-1"), at.timestamp() + 3600)
    assert "2 × ml.g5.xlarge at up to 2.82 USD/h, up to 2.82 USD so far (list price); see http" in said
    assert "what is billed is not known yet" in bill(read(job, "r-1"))


def test_the_newest_message_says_what_a_job_waits_for() -> None:
    said = ["Preparing the instances for training", "Insufficient capacity. Trying again"]
    transitions = [{"Status": "Starting", "StatusMessage": each} for each in said]
    job = {"TrainingJobName": "j", "TrainingJobStatus": "InProgress", "SecondaryStatus": "Starting"}
    seen = read({**job, "SecondaryStatusTransitions": transitions}, "us-east-1")
    assert seen.waits_for == "starts its instances: Insufficient capacity. Trying again"


class Answers:
    """An account whose job `j` has these states, one after the other: pairs of its two statuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: tuple[str, str]) -> None:
        from botocore.stub import Stubber

        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        self.account = AwsAccount(None, "us-east-1")
        self._stubber = Stubber(self.account.client("sagemaker"))
        self.add(*states)
        self._stubber.activate()

    def add(self, *states: tuple[str, str]) -> None:
        """Let the next looks at the job see these states."""
        at = datetime(2026, 1, 1, tzinfo=timezone.utc)
        for status, secondary in states:
            job: dict[str, Any] = {
                "TrainingJobName": "j",
                "TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/j",
                "ModelArtifacts": {"S3ModelArtifacts": "s3://b/model.tar.gz"},
                "TrainingJobStatus": status,
                "SecondaryStatus": secondary,
                "AlgorithmSpecification": {"TrainingInputMode": "File"},
                "ResourceConfig": {
                    "InstanceType": "ml.g5.xlarge",
                    "InstanceCount": 1,
                    "VolumeSizeInGB": 1,
                },
                "StoppingCondition": {},
                "CreationTime": at,
                "TrainingStartTime": at,
            }
            if status == "Completed":
                job |= {"BillableTimeInSeconds": 30}
            self._stubber.add_response("describe_training_job", job, {"TrainingJobName": "j"})

    def refuse_to_stop(self, status: str = "Stopping") -> None:
        """The next call is to be one that stops the job."""
        said = f"The request was rejected because the training job is in status {status}"
        self._stubber.add_client_error("stop_training_job", "ValidationException", said)


def test_the_end_of_a_job_is_awaited_until_its_cost_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is billed when SageMaker has uploaded the model."""
    uploads = ("InProgress", "Uploading")
    found = end_job(Answers(monkeypatch, uploads, ("Completed", "Completed")).account, "j", wait_s=600)
    assert "billed 30 s of 1 × ml.g5.xlarge" in bill(found)
    found = end_job(Answers(monkeypatch, uploads).account, "j", wait_s=0)
    assert "what is billed is not known yet" in bill(found), "it ends by itself, and is not stopped"


def test_a_job_that_ends_just_before_it_is_stopped_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS refuses the stop, and the job costs nothing more."""
    runs, over = ("InProgress", "Training"), ("Completed", "Completed")
    answers = Answers(monkeypatch, runs)
    answers.refuse_to_stop("Completed")
    answers.add(over)
    assert "billed 30 s" in bill(end_job(answers.account, "j", wait_s=0))
    answers = Answers(monkeypatch, runs)
    answers.refuse_to_stop("InProgress")
    answers.add(runs)
    with pytest.raises(LaunchError, match="in status InProgress"):
        end_job(answers.account, "j", wait_s=0)


def test_a_job_that_is_stopping_is_not_stopped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS would refuse it."""
    stopping = Answers(monkeypatch, ("Stopping", "Stopping"))
    stopping.refuse_to_stop()
    assert end_job(stopping.account, "j", wait_s=0).ended is None


def test_the_statement_that_a_policy_lacks() -> None:
    said = (
        "User: arn:aws:iam::1:user/ada is not authorized to perform: sagemaker:CreateTrainingJob on "
        "resource: arn:aws:sagemaker:us-east-1:1:training-job/j because no identity-based policy allows it"
    )
    assert json.loads(str(needed_statement(said))) == {
        "Effect": "Allow",
        "Action": "sagemaker:CreateTrainingJob",
        "Resource": "arn:aws:sagemaker:us-east-1:1:training-job/j",
    }
    for why in (
        "with an explicit deny in a service control policy",
        "because no permissions boundary allows it",
    ):
        other = said.replace("because no identity-based policy allows it", why)
        assert needed_statement(other) is None, "another statement would change nothing"
    assert json.loads(str(needed_statement("Access Denied", "PutObject")))["Action"] == "s3:PutObject"
    assert needed_statement("Access Denied", "DescribeTrainingJob") is None


def test_which_place_a_process_of_a_container_has(tmp_path: Path) -> None:
    hosts = json.dumps([f"algo-{n}" for n in range(1, 12)])
    assert place_of({"SM_HOSTS": hosts, "SM_CURRENT_HOST": "algo-10"}) == (9, 0)
    assert place_of({"SM_HOSTS": hosts, "SM_CURRENT_HOST": "algo-2", "LOCAL_RANK": "3"}) == (1, 3)
    mpi = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    assert place_of({"SM_HOSTS": hosts, "SM_CURRENT_HOST": "algo-1", **mpi}) == (1, 1), (
        "SM_CURRENT_HOST is wrong"
    )
    toolkits = tmp_path / "71"
    toolkits.mkdir()
    (toolkits / "environ").write_bytes(b"JUPYTER_DIST_MAILBOX_RUN=r\0JUPYTER_DIST_MAILBOX_KEY=k\0A=b\0")
    assert whole({"A": "c"}, str(tmp_path)) == {
        "JUPYTER_DIST_MAILBOX_RUN": "r",
        "JUPYTER_DIST_MAILBOX_KEY": "k",
        "A": "c",
    }


def test_a_rank_takes_the_place_that_mpirun_has_for_it(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(json.dumps({"OMPI_COMM_WORLD_RANK": "5", "PMIX_RANK": "5", "A": "lent"}))
    environ = {
        LENT: str(tmp_path),
        "LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_RANK": "4",
        "OMPI_UNIVERSE": "x",
        "A": "own",
    }
    take(environ)
    assert environ == {"LOCAL_RANK": "1", "OMPI_COMM_WORLD_RANK": "5", "PMIX_RANK": "5", "A": "own"}


def test_a_machine_without_credentials_is_not_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    credentials = tmp_path / "credentials"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert SageMaker().detect()["no_site"].startswith("There are no AWS credentials.")
    credentials.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    found = SageMaker().detect()
    assert (found["profiles"], "no_site" in found) == ("default", False)
    monkeypatch.setenv("AWS_PROFILE", "gone")
    found = SageMaker().detect()
    assert found["profiles"] == "default"
    assert "profile (gone) could not be found" in found["no_site"]


_TAKES = """
import os, sys
sys.path.insert(0, sys.argv[1])
from jupyter_dist.worker.launchers.mpi_slot import take
take(os.environ)
import this_is_no_mpi
import mpi4py.MPI
print("began")
"""


def test_a_place_is_lent_once(tmp_path: Path) -> None:
    """Another attempt is told so where it begins MPI, and nowhere else."""
    (tmp_path / "1.json").write_text("{}")
    for name in ("this_is_no_mpi.py", "mpi4py/__init__.py", "mpi4py/MPI.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    said = []
    for attempt in ("0", "0", "1"):
        env = {**os.environ, LENT: str(tmp_path), "LOCAL_RANK": "1", "JUPYTER_DIST_ATTEMPT": attempt}
        argv = [sys.executable, "-c", _TAKES, str(tmp_path)]
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        said.append(done.stdout.strip() or done.stderr.strip().split("\n")[-1])
    assert said[:2] == ["began", "began"]
    assert said[2].startswith(
        "RuntimeError: attempt 1 cannot use MPI, because mpirun starts each rank only once"
    )
