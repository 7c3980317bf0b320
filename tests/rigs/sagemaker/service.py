"""The plane: moto, the front door, the machines, and the calls about training jobs."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.ports import take_port
from tests.rigs.hosts import Hosts, missing
from tests.rigs.kept_plane import Faults

from .endpoint import Fault, FrontDoor
from .instances import Pool
from .job import Job
from .service_model import Refusal, check
from .toolkits import lacking, toolkits
from .training import LOGS, Training
from .tuning import TuningJobs

__all__ = ["SageMakerPlane"]

_BUCKET = "sagemaker-us-east-1-123456789012"


class SageMakerPlane:
    """A context manager."""

    region = "us-east-1"
    account = "123456789012"
    role = f"arn:aws:iam::{account}:role/Train"

    def __init__(self, folder: Path, *, most_instances: int = 4) -> None:
        if why := missing() or lacking():
            pytest.skip(why)
        self.folder, self.toolkits = folder, toolkits()
        self.python = Path(sys.executable)
        """The containers' interpreter."""
        self.own_faults = Faults()
        self.jobs: dict[str, Job] = {}
        self.file_systems: dict[str, dict[str, bytes]] = {}
        """Of EFS and FSx, by their ids: files by name."""
        self.cold_starts = 0
        """How many jobs had machines that were started for them."""
        self._most = most_instances // 2
        self._lock = threading.RLock()
        self._entries: set[tuple[str, str]] = set()
        """Of SageMaker Experiments, which moto keeps."""
        self.tuning = TuningJobs(self)
        self.artifacts: dict[str, dict[str, Any]] = {}
        """Of the lineage, by ARN."""
        self.associations: list[tuple[str, str, str]] = []
        """Of the lineage: the source, the kind and the destination."""

    def __enter__(self) -> SageMakerPlane:
        import boto3
        import botocore.session

        self._model = botocore.session.Session().get_service_model("sagemaker")
        with contextlib.ExitStack() as stack:
            port = take_port()
            argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            moto = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(moto.wait)
            stack.callback(moto.kill)
            self.door = FrontDoor(port, self.answer, self.own_faults)
            stack.callback(self.door.close)
            self.url = f"http://127.0.0.1:{self.door.port}"
            self.pool = Pool(self.folder / "rig", self.door.port, [self.toolkits], self._most)
            stack.callback(self.pool.close)
            keys = {"aws_access_key_id": "plane", "aws_secret_access_key": "x", "region_name": self.region}
            url = f"http://127.0.0.1:{port}"
            _await_moto(moto, url)
            self.s3, self.logs, self._moto = (
                boto3.client(name, endpoint_url=url, **keys) for name in ("s3", "logs", "sagemaker")
            )
            self.logs.create_log_group(logGroupName=LOGS)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.tuning.stop_all()
        for name in list(self.jobs):
            self.stop(name)
        deadline = Deadline()
        while self.active() and not deadline.passed():
            time.sleep(0.05)
        self._stack.close()

    @property
    def environment(self) -> dict[str, str]:
        """What clients on this machine need."""
        keys = {"AWS_ACCESS_KEY_ID": "ada", "AWS_SECRET_ACCESS_KEY": "secret-of-ada"}
        return {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": self.region, **keys}

    @property
    def requests(self) -> list[str]:
        """All that were made, as the names of calls or METHOD PATH."""
        return self.door.requests

    def url_for(self, hosts: Hosts) -> str:
        """The plane's address as those hosts reach it."""
        return f"http://{hosts.driver_address}:{self.door.port}"

    def make_role(self) -> None:
        """Make the role `role` in IAM, as somebody has done it in an account."""
        import boto3

        trusts = {"Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
        document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **trusts}]}
        client = boto3.client("iam", endpoint_url=self.url, region_name=self.region)
        name = self.role.rpartition("/")[2]
        client.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document))

    def lives(self, host: str, pid: int) -> bool:
        """Whether a rank's process still runs in a container."""
        return any(each.own_pid == pid for one in self.pool.all for each in one.hosts.pids(host))

    def fail(
        self,
        pattern: str,
        status: int,
        code: str,
        message: str = "as the test wishes",
        *,
        times: int = -1,
        share: float = 1.0,
    ) -> None:
        """Answer so whatever matches: a regular expression of a call's name, or of METHOD PATH."""
        self.door.fail(Fault(pattern, status, code, message, times, share))

    def delay(self, pattern: str, seconds: float) -> None:
        """What is put in S3 at a path that matches is seen so much later."""
        self.door.delay(pattern, seconds)

    def cut(self, pattern: str, *, times: int) -> None:
        """End the connection of what matches when half of its body has come."""
        self.door.cuts[pattern] = times

    @contextlib.contextmanager
    def hold(self, call: str) -> Iterator[threading.Event]:
        """Do what such a call asks for, and have its answer wait; the event tells that there was one."""
        reached, go_on = threading.Event(), threading.Event()
        self.door.held[call] = reached, go_on
        try:
            yield reached
        finally:
            del self.door.held[call]
            go_on.set()

    def heal(self) -> None:
        """Take all faults away."""
        self.door.heal()

    def active(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.active]

    def stuck(self) -> list[str]:
        """The names of active jobs."""
        return [job.name for job in self.active()]

    def ending(self) -> list[str]:
        """The names of active jobs that were told to end."""
        return [job.name for job in self.active() if job.asked.is_set()]

    def stop(self, name: str, final: str = "Stopped") -> None:
        """As somebody does on the job's page, or, as `MaxRuntimeExceeded`, the service itself."""
        job = self.jobs[name]
        with self._lock:
            if job.status == "InProgress":
                job.status, job.final = "Stopping", final
                job.asked.set()

    def interrupt(self, name: str) -> None:
        """Take its spot instances away; it gets others."""
        self.jobs[name].interrupted.set()

    def names(self, bucket: str = _BUCKET, prefix: str = "") -> list[str]:
        """What lies in a bucket, asked without any fault."""
        try:
            pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return [each["Key"] for page in pages for each in page.get("Contents", [])]
        except self.s3.exceptions.NoSuchBucket:
            return []

    def cloudwatch(self, job: Job) -> dict[str, list[str]]:
        """The lines of a job by its hosts, asked of CloudWatch, without any fault."""
        told: dict[str, list[str]] = {}
        listed = self.logs.describe_log_streams(logGroupName=LOGS, logStreamNamePrefix=f"{job.name}/")
        for stream in listed["logStreams"]:
            name = str(stream["logStreamName"])
            lines = told.setdefault(name.partition("/")[2].rpartition("-")[0], [])
            lines += self._events(logStreamName=name)
        return told

    def _events(self, **asked: str) -> Iterator[str]:
        while True:
            page = self.logs.get_log_events(logGroupName=LOGS, startFromHead=True, **asked)
            yield from (event["message"] for event in page["events"])
            if page["nextForwardToken"] == asked.get("nextToken"):
                return
            asked["nextToken"] = page["nextForwardToken"]

    def answer(self, call: str, told: dict[str, Any]) -> dict[str, Any] | None:
        """Of a call of SageMaker's; None where moto answers it."""
        if call not in self._model.operation_names:
            raise Refusal(400, "UnknownOperationException", call)
        check(self._model.operation_model(call).input_shape, told)
        if call == "CreateTrainingJob":
            return self._create(told)
        if call in ("CreateArtifact", "ListArtifacts", "AddAssociation"):
            return self._lineage(call, told)
        if call == "Search" and told["Resource"] == "ExperimentTrialComponent":
            return self._of_experiment(told)
        if call in ("CreateExperiment", "CreateTrial", "CreateTrialComponent"):
            self._new_entry(call, told)
            return None
        if "HyperParameterTuningJob" in call:
            return self.tuning.answer(call, told)
        if call not in ("DescribeTrainingJob", "StopTrainingJob"):
            return None
        job = self.jobs.get(told.get("TrainingJobName", ""))
        if job is None:
            raise Refusal(400, "ValidationException", "Requested resource not found.")
        if call == "DescribeTrainingJob":
            return job.described()
        self.stop(job.name)
        return {}

    def _lineage(self, call: str, told: dict[str, Any]) -> dict[str, Any]:
        """moto knows none."""
        with self._lock:
            if call == "ListArtifacts":
                found = [
                    arn
                    for arn, one in self.artifacts.items()
                    if one["Source"]["SourceUri"] == told["SourceUri"]
                ]
                return {"ArtifactSummaries": [{"ArtifactArn": arn} for arn in found]}
            if call == "AddAssociation":
                edge = (told["SourceArn"], told["AssociationType"], told["DestinationArn"])
                if edge in self.associations:
                    raise Refusal(400, "ValidationException", "Association already exists")
                self.associations.append(edge)
                return {"SourceArn": told["SourceArn"], "DestinationArn": told["DestinationArn"]}
            arn = f"arn:aws:sagemaker:{self.region}:{self.account}:artifact/{len(self.artifacts):032x}"
            self.artifacts[arn] = told
            return {"ArtifactArn": arn}

    def _of_experiment(self, told: dict[str, Any]) -> dict[str, Any]:
        """moto finds components by their trial alone."""
        (wanted,) = told["SearchExpression"]["Filters"]
        found = []
        for trial in self._moto.list_trials(ExperimentName=wanted["Value"])["TrialSummaries"]:
            listed = self._moto.list_trial_components(TrialName=trial["TrialName"])
            for each in listed["TrialComponentSummaries"]:
                name = each["TrialComponentName"]
                about = self._moto.describe_trial_component(TrialComponentName=name)
                del about["ResponseMetadata"]
                times = {
                    key: value.timestamp() for key, value in about.items() if hasattr(value, "timestamp")
                }
                parents = [{"TrialName": trial["TrialName"], "ExperimentName": wanted["Value"]}]
                values = self.door.charted.get(name, {})
                metrics = [{"MetricName": key, "Last": value} for key, value in values.items()]
                found.append({"TrialComponent": {**about, **times, "Parents": parents, "Metrics": metrics}})
        return {"Results": found[::-1]}

    def _new_entry(self, call: str, told: dict[str, Any]) -> None:
        """moto makes one anew under a name that is taken."""
        entry = (call, told[f"{call.removeprefix('Create')}Name"])
        with self._lock:
            if entry in self._entries:
                raise Refusal(400, "ValidationException", f"{entry[1]} already exists")
            self._entries.add(entry)

    def shape(self, name: str) -> Any:
        """Of AWS's own model of the service."""
        return self._model.shape_for(name)

    def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["TrainingJobName"]
        arn = f"arn:aws:sagemaker:{self.region}:{self.account}:training-job/{name}"
        with self._lock:
            if name in self.jobs:
                raise Refusal(400, "ResourceInUse", "Training job names must be unique within an AWS account")
            job = self.jobs[name] = Job(request, arn)
        Training(self, job)
        return {"TrainingJobArn": arn}


def _await_moto(moto: subprocess.Popen[bytes], url: str) -> None:
    deadline = Deadline()
    while True:
        try:
            urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
            return
        except OSError:
            if deadline.passed() or moto.poll() is not None:
                raise
            time.sleep(0.1)
