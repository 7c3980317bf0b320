"""Engine of `sagemaker`: a tuning job, which chooses values and starts the training jobs itself.

https://docs.aws.amazon.com/sagemaker/latest/dg/automatic-model-tuning.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from ... import folder as folders
from ...backends.sagemaker.account import AwsAccount, InUse, NotThere
from ...backends.sagemaker.checks import region_for
from ...backends.sagemaker.client import SageMakerClient
from ...backends.sagemaker.jobs import look_at
from ...backends.sagemaker.options import SageMakerOptions
from ...backends.sagemaker.request import mailbox_of
from ...backends.sagemaker.tuning_request import parameters_of, tuning_name
from ...errors import DistError
from ...hosts.links.mailbox import Mailbox
from ...job import Job
from ...record import reader
from ...search.dimensions import Value
from ...search.spec import Search
from .service_engine import ServiceEngine, ServiceStatus

__all__ = ["SageMakerEngine"]


class SageMakerEngine(ServiceEngine):
    """Engine with one tuning job."""

    def __init__(self, search: Search, job: Job) -> None:
        super().__init__(job.id, _TuningJob(search, job))


class _TuningJob:
    """`Service` of one run."""

    known_as = "training_job"

    def __init__(self, search: Search, job: Job) -> None:
        assert job.tuning is not None
        self._search, self._run = search, job.id
        self._trial = Job.from_json(job.tuning["trial"])
        self._asked = SageMakerOptions(**self._trial.options)
        self._account = AwsAccount(self._asked.profile, region_for(self._asked))
        self._name = tuning_name(job.id)
        self.called = f"tuning job {self._name}"

    def begin(self) -> None:
        with contextlib.suppress(NotThere):
            self._status()
            return
        if self._search.parent is not None:
            self._check_parent(self._search.parent)
        asked, region = self._asked, self._account.region
        folder = folders.RunFolder(folders.runs_root() / self._run)
        platform_client = SageMakerClient(self._account, asked, self._run)
        mailbox = Mailbox(mailbox_of(asked, region), folder, store=platform_client.store)
        platform_client.upload_code(mailbox)
        request = platform_client.tuning(self._search, self._trial, self._run, mailbox)
        with contextlib.suppress(InUse), self._account.asking("start a tuning job") as client:
            client.create_hyper_parameter_tuning_job(**request)
        print(f"{self.called} in {region}", flush=True)

    def look(self) -> ServiceStatus:
        status, why = self._status()
        jobs = self._list()  # read after the state: if the tuning job has ended, these are all jobs
        return ServiceStatus(jobs, self._why_ended(status, why, any_job=bool(jobs)))

    def has_ended_early(self, job: str) -> bool:
        with contextlib.suppress(NotThere):
            return look_at(self._account, job).status == "Stopped"
        return False

    def stop(self) -> None:
        with self._account.asking(f"stop the tuning job {self._name!r}") as client:
            client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=self._name)

    def _why_ended(self, status: str, why: str, *, any_job: bool) -> str | None:
        if status in ("InProgress", "Stopping"):
            return None
        if status == "Completed" or (status == "Failed" and any_job and not why):
            return ""
        word = {"Stopped": "was stopped", "Failed": "has failed"}.get(status, f"is {status}")
        return f"{self.called} {word}" + (f": {why[:1000]}" if why else "")

    def _check_parent(self, parent: str) -> None:
        about = reader.job(folders.RunFolder(folders.runs_root() / parent))
        if about.where != self._trial.backend:
            raise DistError(
                f"run {parent} was tuned on {about.where}, so SageMaker does not have its trials. "
                "Remove --warm-start"
            )

    def _status(self) -> tuple[str, str]:
        with self._account.asking(f"look after the tuning job {self._name!r}") as client:
            told = client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=self._name)
        return str(told["HyperParameterTuningJobStatus"]), str(told.get("FailureReason") or "")

    def _list(self) -> Mapping[str, Mapping[str, Value]]:
        found: dict[str, Mapping[str, Value]] = {}
        more: dict[str, Any] = {}
        while True:
            with self._account.asking(f"list the training jobs of {self._name!r}") as client:
                told = client.list_training_jobs_for_hyper_parameter_tuning_job(
                    HyperParameterTuningJobName=self._name,
                    MaxResults=100,
                    SortBy="CreationTime",
                    SortOrder="Ascending",
                    **more,
                )
            for each in told["TrainingJobSummaries"]:
                tuned = each["TunedHyperParameters"]
                found[str(each["TrainingJobName"])] = parameters_of(self._search, tuned)
            if not told.get("NextToken"):
                return found
            more = {"NextToken": told["NextToken"]}
