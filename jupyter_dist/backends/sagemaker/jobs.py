"""Training jobs: described and ended. Every call may block.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...agent.stores.aws_credentials import partition_of
from ..job_watch import JobView, NotThere, wait_or_stop
from .account import AwsAccount

__all__ = ["TrainingJob", "describe", "end_job", "look_again", "look_at", "parameter", "read", "second"]

_WAITS = {
    "Starting": "starts its instances",
    "Pending": "waits for its instances",
    "LaunchingMLInstances": "starts its instances",
    "PreparingTrainingStack": "sets its instances up",
    "DownloadingTrainingImage": "downloads the image",
    "Downloading": "downloads its inputs",
    "Training": "runs, and has to start its hosts",
    "Uploading": "uploads what it has written",
    "Interrupted": "was interrupted: its spot instances were taken away",
    "Restarting": "starts again",
    "Updating": "is updated",
    "Stopping": "is stopping",
}
_STOPPED = {
    "MaxRuntimeExceeded": "has run for as long as it may (--max-run)",
    "MaxWaitTimeExceeded": "has waited for as long as it may (--max-wait)",
    "Interrupted": "was interrupted: its spot instances were taken away",
}
_AWAY = ("Interrupted", "Restarting")


@dataclass(frozen=True)
class TrainingJob(JobView):
    """A training job as SageMaker reports it."""

    name: str
    status: str
    secondary: str
    instances: int = 1
    training_s: int | None = None
    billed_s: int | None = None
    spot: bool = False
    instance_type: str = ""
    phases: Sequence[Sequence[Any]] = ()
    """The job's secondary states so far, each with its start in seconds since the epoch."""
    began: float | None = None
    """When the billing of the instances began."""
    over: float | None = None
    model: str | None = None
    """The S3 address of the content of dist.model_dir()."""
    interruptions: int = 0
    """How often AWS has reclaimed the job's instances."""

    @property
    def active(self) -> bool:
        """Whether the job has not ended, and is not ending."""
        return self.ended is None and not self.ending

    def lost_since(self, first: TrainingJob) -> str | None:
        """Return why the job's first hosts are lost, for the user. None while they may exist."""
        if self.ended is None and self.interruptions > first.interruptions:
            return f"{self.called} {_STOPPED['Interrupted']}"
        return self.ended


def read(told: Mapping[str, Any], region: str) -> TrainingJob:
    """Parse an answer of DescribeTrainingJob. Pure."""
    name, status = str(told["TrainingJobName"]), str(told["TrainingJobStatus"])
    secondary = str(told.get("SecondaryStatus", ""))
    page = f"https://{_console(region)}/sagemaker/home?region={region}#/jobs/{name}"
    waits = _WAITS.get(secondary, f"is {secondary or status}")
    transitions = told.get("SecondaryStatusTransitions") or []
    message = str(transitions[-1].get("StatusMessage", "")) if transitions else ""
    if message and secondary in ("Starting", "Pending"):
        waits += f": {message[:200]}"
    artifacts = told.get("ModelArtifacts") or {}
    seen = TrainingJob(
        name,
        status,
        secondary,
        called=f"job {name}",
        page=page,
        waits_for=waits,
        # Somebody stopped it on its page, or the tuning job that has started it did.
        ending=status == "Stopping",
        stopped=(status, secondary) == ("Stopped", "Stopped"),
        instances=int(told.get("ResourceConfig", {}).get("InstanceCount") or 1),
        training_s=told.get("TrainingTimeInSeconds"),
        billed_s=told.get("BillableTimeInSeconds"),
        spot=bool(told.get("EnableManagedSpotTraining")),
        instance_type=str(told.get("ResourceConfig", {}).get("InstanceType") or ""),
        phases=[
            [str(each["Status"]), second(each["StartTime"])] for each in transitions if "StartTime" in each
        ],
        began=second(told.get("TrainingStartTime")),
        over=second(told.get("TrainingEndTime")),
        model=artifacts.get("S3ModelArtifacts"),
        interruptions=_interruptions([str(each.get("Status")) for each in transitions]),
    )
    if status in ("InProgress", "Stopping"):
        return seen
    reason = " ".join(str(told.get("FailureReason") or "").split()).rstrip(".")
    if status == "Completed":
        why = "has ended"
    elif status == "Stopped":
        why = _STOPPED.get(secondary, "was stopped")
    else:
        why = "has failed"
    ended = f"job {name} {why}" + (f": {reason[:1000]}" if reason else "") + f"; see {page}"
    if reason.startswith("CapacityError"):
        ended += ". Other instance types or regions may have room, or the same ones later"
    return dataclasses.replace(seen, ended=ended, final=reason.startswith("ClientError"))


def _console(region: str) -> str:
    """Return the host of AWS's console. China and GovCloud have others than the rest.

    https://docs.aws.amazon.com/govcloud-us/latest/UserGuide/govcloud-console.html
    """
    partition = partition_of(region)
    if partition == "aws-us-gov":
        return "console.amazonaws-us-gov.com"
    return f"{region}.console.{'amazonaws.cn' if partition == 'aws-cn' else 'aws.amazon.com'}"


def second(when: Any) -> float | None:
    """Return a time of boto3's in seconds since the epoch."""
    return None if when is None else float(when.timestamp())


def parameter(text: str | None) -> Any:
    """Return the value of a hyperparameter, which the SDK writes as JSON."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def _interruptions(states: list[str]) -> int:
    """Count the interruptions in a history of states.

    A poll does not see every state. `Interrupted` followed by `Restarting` counts as one.
    """
    return sum(
        now in _AWAY and before not in _AWAY for before, now in zip(["", *states], states, strict=False)
    )


def describe(account: AwsAccount, name: str) -> Mapping[str, Any]:
    """Return SageMaker's description of a job. Raises NotThere."""
    with account.asking(f"look after the training job {name!r}") as client:
        told: Mapping[str, Any] = client.describe_training_job(TrainingJobName=name)
        return told


def look_at(account: AwsAccount, name: str) -> TrainingJob:
    """Return the state of a job. Raises NotThere."""
    return read(describe(account, name), account.region)


def look_again(account: AwsAccount, seen: TrainingJob) -> TrainingJob:
    """Return the new state of a job. Raises DistError."""
    try:
        return look_at(account, seen.name)
    except NotThere:
        return dataclasses.replace(seen, ended=f"{seen.called} is gone: nobody knows it in {account.region}")


def end_job(account: AwsAccount, name: str, *, wait_s: float) -> TrainingJob:
    """End a job, as `wait_or_stop` does."""

    def stop() -> None:
        with account.asking(f"stop the training job {name!r}") as client:
            client.stop_training_job(TrainingJobName=name)

    deadline = time.monotonic() + wait_s
    return wait_or_stop(
        lambda: look_at(account, name),
        stop,
        wait_s,
        # The cost is unknown while SageMaker uploads the model.
        is_over=lambda seen: (
            not seen.active or (seen.secondary == "Uploading" and time.monotonic() >= deadline)
        ),
    )
