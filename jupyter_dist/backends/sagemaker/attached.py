"""The backend of a run that shows a training job which somebody else has started. It starts nothing.

The backend reads DescribeTrainingJob and CloudWatch. A failed request ends nothing: the job is not ours.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...errors import DistError, InputError
from ...folder import RunFolder
from ...job import Job, Poll, RankState, State
from ..attached_job import AttachedJob
from ..interface import Capabilities, Extensions, Handle, Options
from ..platform_job import JobWatch
from .account import AwsAccount, region_of
from .billing import bill, so_far
from .jobs import TrainingJob, describe, look_again, look_at, read
from .log_owners import Speakers
from .logs import ConsoleLogs
from .model_download import fetch_model

__all__ = ["AttachedTrainingJob", "SeenJobOptions"]

_LOOK_EVERY_S = 3.0
_LAG_S = 5.0
"""Seconds after a job's end within which its last output may appear in CloudWatch."""
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


class AttachedTrainingJob(AttachedJob):
    """Shows one training job. The handle is the job's name and options."""

    name: ClassVar[str] = "sagemaker-job"
    options: ClassVar[type[Options]] = SeenJobOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        restarts=False, outlives=True, apart=True, visible=False, stacks=False, stop_grace_s=150.0
    )
    extensions: ClassVar[Extensions] = Extensions(fetch_model=_fetch_model)
    poll_interval_s: ClassVar[float] = 2.0

    def __init__(self) -> None:
        self._account: AwsAccount | None = None
        self._watch: JobWatch[TrainingJob] | None = None
        self._logs: ConsoleLogs | None = None
        self._speakers: Speakers | None = None
        self._blind_since: float | None = None

    @staticmethod
    def adopt(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run's job: fields of `Job`. `given`: profile and region. Blocks.

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
        return {
            "world_size": Speakers.of(told).size,
            "source": "\n".join(about),
            "label": name,
            "options": SeenJobOptions(job=name, profile=profile, region=region).model_dump(),
            "metrics": {each["Name"]: each["Regex"] for each in definitions if _usable(each["Regex"])},
        }

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        return {"describe_training_job": {"TrainingJobName": job.options["job"]}}

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        try:
            self._open(job, folder, handle)
        except Exception as error:
            return Poll(State.PENDING, RankState.all(handle["ranks"]), detail=str(error))
        assert self._watch is not None
        assert self._logs is not None
        seen, trouble = self._watch.seen, self._watch.trouble  # before its log, which is then complete
        try:
            complete = self._logs.read()
            self._blind_since = None
        except Exception as error:
            self._blind_since = self._blind_since or time.monotonic()
            complete = seen.ended is not None and time.monotonic() - self._blind_since > _NO_LOG_S
            trouble = trouble or str(error)
        over = seen.ended is not None and complete and time.time() - (seen.over or 0.0) > _LAG_S
        return self._as_poll(seen, handle, over, trouble)

    def _as_poll(self, seen: TrainingJob, handle: Handle, over: bool, trouble: str | None) -> Poll:
        assert self._logs is not None
        assert self._speakers is not None
        said = self._logs.ranks
        runs = bool(said) or seen.began is not None
        final = {"Completed": State.SUCCEEDED, "Stopped": State.STOPPED}.get(seen.status, State.FAILED)
        # The service does not report with which rank a failure began.
        of_rank = State.SUCCEEDED if final is State.SUCCEEDED else State.STOPPED
        ranks = tuple(
            RankState(
                rank,
                of_rank if over else State.RUNNING if runs else State.PENDING,
                host=self._speakers.host_of(rank),
                started=seen.began or (said[rank][0] if rank in said else None),
                ended=seen.over if over else None,
            )
            for rank in range(max([handle["ranks"], *(rank + 1 for rank in said)]))
        )
        if over:
            return Poll(final, ranks, final=True, detail=seen.ended)
        told = f"job {seen.name} {seen.waits_for}; see {seen.page}"
        if seen.secondary == "Training":
            told = so_far(seen, time.time())
        state = State.RUNNING if runs else State.PENDING
        return Poll(state, ranks, detail="; ".join(filter(None, (trouble, told))))

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        """Stop the job itself, as the user asked."""
        self._open(job, folder, handle)
        assert self._account is not None
        try:
            with self._account.asking(f"stop the training job {handle['job']!r}") as client:
                client.stop_training_job(TrainingJobName=handle["job"])
        except DistError:
            if look_at(self._account, handle["job"]).active:
                raise

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        if self._watch is None:
            return None
        self._watch.close()
        return bill(self._watch.seen)

    def _open(self, job: Job, folder: RunFolder, handle: Handle) -> None:
        if self._watch is not None:
            return
        self._account = account = AwsAccount(handle["profile"], handle["region"])
        told = describe(account, handle["job"])
        self._speakers = Speakers.of(told)
        self._logs = ConsoleLogs(account, handle["job"], folder, self._speakers)
        look = functools.partial(look_again, account)
        self._watch = JobWatch(look, read(told, account.region), _LOOK_EVERY_S)


def _usable(pattern: str) -> bool:
    """Return whether the pattern is also valid in Python, and has a group for the value."""
    try:
        return re.compile(pattern).groups >= 1
    except re.error:
        return False
