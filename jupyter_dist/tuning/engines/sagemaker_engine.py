"""Engine of `sagemaker`: a tuning job, which chooses values and starts the training jobs itself.

https://docs.aws.amazon.com/sagemaker/latest/dg/automatic-model-tuning.html
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

from ... import folder as folders
from ...backends.job_watch import InUse, NotThere
from ...backends.sagemaker.account import AwsAccount
from ...backends.sagemaker.checks import region_for
from ...backends.sagemaker.client import SageMakerClient
from ...backends.sagemaker.jobs import look_at
from ...backends.sagemaker.options import SageMakerOptions
from ...backends.sagemaker.request import mailbox_of
from ...backends.sagemaker.tuning.entry import begin_tuning_entry, end_tuning_entry
from ...backends.sagemaker.tuning.jobs import describe_tuning, find_tuning, stop_tuning, training_jobs
from ...backends.sagemaker.tuning.request import parameters_of, tuning_names
from ...hosts.links.mailbox import Mailbox
from ...job import Job
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
        self._search, self._run, self._job = search, job.id, job
        self._trial = Job.from_json(job.tuning["trial"])
        self._asked = SageMakerOptions(**self._trial.options)
        self._account = AwsAccount(self._asked.profile, region_for(self._asked))
        self._folder = folders.RunFolder(folders.runs_root() / job.id)
        self._name = tuning_names(self._asked, job.id)[0]
        self.called = f"tuning job {self._name}"

    def begin(self) -> None:
        begin_tuning_entry(self._account, self._asked, self._of_entry(), self._search)
        if self._find():
            return
        asked, region = self._asked, self._account.region
        platform_client = SageMakerClient(self._account, asked, self._run)
        mailbox = Mailbox(mailbox_of(asked, region), self._folder, store=platform_client.store)
        platform_client.upload_code(mailbox)
        *exact, own = tuning_names(asked, self._run)
        for name in (*exact, own):
            request = platform_client.tuning(self._search, self._trial, name, mailbox)
            try:
                with self._account.asking("start a tuning job") as client:
                    client.create_hyper_parameter_tuning_job(**request)
            except InUse:
                if name != own:
                    if self._find():  # an earlier call has started it
                        break
                    print(f"the account has another tuning job {name}, so this one is {own}", flush=True)
                    continue
            self._called(name)
            break
        print(f"{self.called} in {region}", flush=True)

    def close(self) -> None:
        job, folder = self._of_entry(), self._folder
        told = end_tuning_entry(self._account, self._asked, job, folder, self._search)
        if told is not None:
            print(told, flush=True)

    def _of_entry(self) -> Job:
        """Return a job with the tuning run's id, and with the ranks of a trial."""
        return dataclasses.replace(self._trial, id=self._run, created=self._job.created)

    def _find(self) -> bool:
        """Look for the run's tuning job in the account, and note its name. Return whether there is one."""
        told = find_tuning(self._account, self._asked, self._folder)
        if told is not None:
            self._called(str(told["HyperParameterTuningJobName"]))
        return told is not None

    def _called(self, name: str) -> None:
        self._name, self.called = name, f"tuning job {name}"

    def look(self) -> ServiceStatus:
        status, why = self._status()
        jobs = self._list()  # read after the state: if the tuning job has ended, these are all jobs
        return ServiceStatus(jobs, self._why_ended(status, why, any_job=bool(jobs)))

    def has_ended_early(self, job: str) -> bool:
        with contextlib.suppress(NotThere):
            return look_at(self._account, job).status == "Stopped"
        return False

    def stop(self) -> None:
        if self._find():  # otherwise the name may be that of somebody else's job
            stop_tuning(self._account, self._name)

    def _why_ended(self, status: str, why: str, *, any_job: bool) -> str | None:
        if status in ("InProgress", "Stopping"):
            return None
        if status == "Completed" or (status == "Failed" and any_job and not why):
            return ""
        word = {"Stopped": "was stopped", "Failed": "has failed"}.get(status, f"is {status}")
        return f"{self.called} {word}" + (f": {why[:1000]}" if why else "")

    def _status(self) -> tuple[str, str]:
        told = describe_tuning(self._account, self._name)
        return str(told["HyperParameterTuningJobStatus"]), str(told.get("FailureReason") or "")

    def _list(self) -> Mapping[str, Mapping[str, Value]]:
        return {
            str(each["TrainingJobName"]): parameters_of(self._search, each["TunedHyperParameters"])
            for each in training_jobs(self._account, self._name)
        }
