"""The backend of a run that shows a training job: it reads DescribeTrainingJob and CloudWatch."""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...errors import DistError, InputError
from ...folder import RunFolder
from ...job import Job, RankState, State
from ..attached_job import AttachedJob, JobEnd, JobStatus, lag_s, showing
from ..interface import Capabilities, Extensions, Options
from ..job_watch import JobWatch
from .account import AwsAccount, region_of
from .billing import bill, so_far
from .jobs import describe, look_again, look_at, read
from .log_owners import Speakers
from .logs import ConsoleLogs
from .model_download import fetch_model

__all__ = ["AttachedTrainingJob", "SeenJobOptions"]

_LOOK_EVERY_S = 3.0
_NO_LOG_S = 60.0
"""Seconds after the job's end that the backend waits for an unreadable log."""


class SeenJobOptions(Options):
    """The job, and its account."""

    job: str
    profile: str | None = None
    region: str


def _fetch_model(job: Job, folder: RunFolder, into: Path) -> None:
    """Unpack the job's model. Blocks. Raises DistError."""
    asked = SeenJobOptions(**job.options)
    fetch_model(AwsAccount(asked.profile, asked.region), [asked.job], into)


class _Client:
    """Reads one training job and its log in CloudWatch."""

    cursor: None = None

    def __init__(self, job: Job, folder: RunFolder, cursor: Any) -> None:
        asked, self._wanted = SeenJobOptions(**job.options), job.world_size
        account = AwsAccount(asked.profile, asked.region)
        told = describe(account, asked.job)
        self._speakers = Speakers.of(told)
        self._logs = ConsoleLogs(account, asked.job, folder, self._speakers)
        look = functools.partial(look_again, account)
        self._watch = JobWatch(look, read(told, account.region), _LOOK_EVERY_S)

    def look(self) -> JobStatus:
        seen, trouble = self._watch.seen, self._watch.trouble  # before its log, which is then complete
        try:
            rest_s = lag_s(seen.over or 0.0) if self._logs.read() else math.inf
        except Exception as error:
            trouble, rest_s = trouble or str(error), _NO_LOG_S
        said = self._logs.ranks
        state = State.RUNNING if said or seen.began is not None else State.PENDING
        ranks = tuple(
            RankState(
                rank,
                state,
                host=self._speakers.host_of(rank),
                started=seen.began or (said[rank][0] if rank in said else None),
            )
            for rank in range(max([self._wanted, *(rank + 1 for rank in said)]))
        )
        told = f"job {seen.name} {seen.waits_for}; see {seen.page}"
        if seen.secondary == "Training":
            told = so_far(seen, time.time())
        detail = "; ".join(filter(None, (trouble, told)))
        if seen.ended is None:
            return JobStatus(state, ranks, detail)
        final = {"Completed": State.SUCCEEDED, "Stopped": State.STOPPED}.get(seen.status, State.FAILED)
        return JobStatus(state, ranks, detail, JobEnd(final, seen.ended, seen.over, rest_s))

    def close(self) -> str | None:
        self._watch.close()
        return bill(self._watch.seen)


def _end(options: Mapping[str, Any]) -> None:
    asked = SeenJobOptions(**options)
    account = AwsAccount(asked.profile, asked.region)
    try:
        with account.asking(f"stop the training job {asked.job!r}") as client:
            client.stop_training_job(TrainingJobName=asked.job)
    except DistError:
        if look_at(account, asked.job).active:
            raise


class AttachedTrainingJob(AttachedJob):
    """Shows one training job."""

    name: ClassVar[str] = "sagemaker-job"
    options: ClassVar[type[Options]] = SeenJobOptions
    capabilities: ClassVar[Capabilities] = showing(stop_grace_s=150.0)
    extensions: ClassVar[Extensions] = Extensions(fetch_model=_fetch_model)

    def __init__(self) -> None:
        super().__init__(_Client, _end)

    @staticmethod
    def adopt(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run's job: fields of `Job`. `given`: profile and region. Blocks.

        The `id` is that of the run which has started the job, if jupyter-dist did.

        Raises InputError if the job does not exist, and other DistErrors.
        """
        profile = given.get("profile")
        region = region_of(given.get("region"), profile)
        if region is None:
            raise InputError(f"the region of {name} is unknown. Add --region, or set AWS_REGION")
        account = AwsAccount(profile, region)
        told = describe(account, name)
        parameters = {
            key: text
            for key, text in (told.get("HyperParameters") or {}).items()
            if not key.startswith("sagemaker_")
        }
        about = [f"# the training job {name} in {region}, which was started elsewhere"]
        about += [f"{key} = {text}" for key, text in parameters.items()]
        definitions = told["AlgorithmSpecification"].get("MetricDefinitions") or []
        started_by = (told.get("Environment") or {}).get("JUPYTER_DIST_MAILBOX_RUN")
        return {
            **({} if started_by is None else {"id": started_by}),
            "world_size": Speakers.of(told).size,
            "source": "\n".join(about),
            "label": name,
            "options": SeenJobOptions(job=name, profile=profile, region=region).model_dump(),
            "metrics": {each["Name"]: each["Regex"] for each in definitions if _usable(each["Regex"])},
        }


def _usable(pattern: str) -> bool:
    """Return whether the pattern is also valid in Python, and has a group for the value."""
    try:
        return re.compile(pattern).groups >= 1
    except re.error:
        return False
