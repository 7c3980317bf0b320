"""The engine of `sagemaker`: a tuning job, which chooses values and starts the training jobs itself.

Each of them is a trial of ours. Its hosts wait for a driver (agent/courier.py), which is the trial's run: the
backend finds the job by its name, and the mailbox by the same.

https://docs.aws.amazon.com/sagemaker/latest/dg/automatic-model-tuning.html
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ... import folder as folders
from ...backends.on_sagemaker.aws_account import AwsAccount, InUse, NotThere
from ...backends.on_sagemaker.job_errands import JobErrands
from ...backends.on_sagemaker.job_request import mailbox_of
from ...backends.on_sagemaker.training_checks import region_for
from ...backends.on_sagemaker.training_options import SageMakerOptions
from ...backends.on_sagemaker.tuning_request import parameters_of, tuning_name
from ...backends.platform_job import SignedOut
from ...errors import DistError, Unreachable
from ...hosts.mailbox import Mailbox
from ...job import Job
from ...record import reader
from ...record.trials import Trial
from ...search.spec import Search
from . import Proposal

__all__ = ["SageMakerEngine"]

_LOOK_EVERY_S = 2.0


class SageMakerEngine:
    """One tuning job. What AWS does not answer is asked again at a later turn."""

    def __init__(self, search: Search, job: Job) -> None:
        assert job.tuning is not None
        self._search, self._run = search, job.id
        self._trial = Job.from_json(job.tuning["trial"])
        self._asked = SageMakerOptions(**self._trial.options)
        self._account = AwsAccount(self._asked.profile, region_for(self._asked))
        self._name = tuning_name(job.id)
        self._known: set[str] = set()
        self._new: deque[Mapping[str, Any]] = deque()
        self._jobs: dict[int, str] = {}
        self._statuses: dict[str, str] = {}
        """Of the training jobs, by name."""
        self._there = self._stopped = False
        self._looked = 0.0
        self._ended: str | None = None
        """Why no more will come; empty where the tuning job has ended as it should."""

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        if not of_parent and trial.handle is not None:
            self._known.add(str(trial.handle["training_job"]))
            self._jobs[trial.number] = str(trial.handle["training_job"])

    def ask(self, number: int) -> Proposal | None:
        self._look()
        if not self._new:
            return None
        told = self._new.popleft()
        name = str(told["TrainingJobName"])
        self._jobs[number] = name
        return Proposal(
            parameters_of(self._search, told["TunedHyperParameters"]), handle={"training_job": name}
        )

    def is_hopeless(self, number: int, reported: Sequence[tuple[int, float]]) -> bool:
        place = folders.RunFolder(folders.runs_root() / folders.trial_id(self._run, number))
        if not reader.status(place).state.ended:
            return False  # the service ends it
        self._looked = -_LOOK_EVERY_S  # how its job stands now, and not a while ago
        self._look()
        return not self._stopped and self._statuses.get(self._jobs.get(number, "")) == "Stopped"

    def tell(
        self, number: int, state: str, value: float | None, reported: Sequence[tuple[int, float]]
    ) -> None:
        pass  # the service reads the same in CloudWatch

    def exhausted(self) -> str | None:
        return None if self._new else self._ended

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._call_off()

    def close(self) -> None:
        if self._ended is None:
            self.stop()

    def _call_off(self) -> None:
        try:
            with self._account.asking(f"stop the tuning job {self._name!r}") as client:
                client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=self._name)
        except DistError as error:
            # There may be none yet, or it has ended.
            print(f"tuning job {self._name} was not stopped: {error}", flush=True)

    def _look(self) -> None:
        """At the training jobs there are by now, if the last look is a while ago."""
        now = time.monotonic()
        if self._ended is not None or now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        try:
            if not self._there:
                self._create()
                self._there = True
            status, why = self._status()
            self._list()  # after its end was seen, all of them
            if status not in ("InProgress", "Stopping"):
                self._ended = self._why_ended(status, why)
        except SignedOut as error:
            raise Unreachable(str(error)) from error
        except Unreachable:
            raise
        except DistError as error:
            self._ended = str(error)

    def _why_ended(self, status: str, why: str) -> str:
        if status == "Completed" or (status == "Failed" and self._statuses and not why):
            return ""
        word = {"Stopped": "was stopped", "Failed": "has failed"}.get(status, f"is {status}")
        return f"tuning job {self._name} {word}" + (f": {why[:1000]}" if why else "")

    def _create(self) -> None:
        """One tuning job, however often it is asked for: names are unique."""
        with contextlib.suppress(NotThere):
            self._status()
            return
        if self._search.parent is not None:
            self._check_parent(self._search.parent)
        asked, region = self._asked, self._account.region
        folder = folders.RunFolder(folders.runs_root() / self._run)
        errands = JobErrands(self._account, asked, self._run)
        mailbox = Mailbox(mailbox_of(asked, region), folder, store=errands.store)
        errands.upload_code(mailbox)
        request = errands.tuning(self._search, self._trial, self._run, mailbox)
        with contextlib.suppress(InUse), self._account.asking("start a tuning job") as client:
            client.create_hyper_parameter_tuning_job(**request)
        print(f"tuning job {self._name} in {region}", flush=True)

    def _check_parent(self, parent: str) -> None:
        about = reader.job(folders.RunFolder(folders.runs_root() / parent))
        if about.where != self._trial.backend:
            raise DistError(
                f"run {parent} was tuned on {about.where}: SageMaker knows nothing of its trials. "
                "Leave --warm-start out"
            )

    def _status(self) -> tuple[str, str]:
        with self._account.asking(f"look after the tuning job {self._name!r}") as client:
            told = client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=self._name)
        return str(told["HyperParameterTuningJobStatus"]), str(told.get("FailureReason") or "")

    def _list(self) -> None:
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
                name = str(each["TrainingJobName"])
                self._statuses[name] = str(each["TrainingJobStatus"])
                if name not in self._known:
                    self._known.add(name)
                    self._new.append(each)
            if not told.get("NextToken"):
                return
            more = {"NextToken": told["NextToken"]}
