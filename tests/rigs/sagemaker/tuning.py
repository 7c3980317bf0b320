"""Tuning jobs of the plane: training jobs with values drawn at random, a few at a time.

Whatever the strategy is called: the service's own are its secret. A grid is gone through in its order. The
request is checked as the service does, and the objective is looked for in what a job's hosts have printed.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .service_model import Refusal

if TYPE_CHECKING:
    from .service import SageMakerPlane

__all__ = ["TuningJob", "TuningJobs"]

_PAGE = 5
"""Of a list: what is more comes on the next page."""


@dataclass
class TuningJob:
    """A tuning job as the service knows it."""

    request: dict[str, Any]
    status: str = "InProgress"
    reason: str | None = None
    created: float = field(default_factory=time.time)
    tried: dict[str, dict[str, str]] = field(default_factory=dict)
    """The values of each training job, by name, in the order in which they were started."""
    best: dict[str, Any] | None = None
    """The best training job of one that the service has run elsewhere."""
    stopped: threading.Event = field(default_factory=threading.Event)


def _ranges(request: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = request["HyperParameterTuningJobConfig"]["ParameterRanges"]
    return found


class TuningJobs:
    """Answers the calls about them."""

    def __init__(self, plane: SageMakerPlane) -> None:
        self._plane = plane
        self.jobs: dict[str, TuningJob] = {}
        self.reads = threading.Event()
        """Whether the service reads the objectives of training jobs that have ended."""
        self.reads.set()

    def answer(self, call: str, told: dict[str, Any]) -> dict[str, Any]:
        name = told.get("HyperParameterTuningJobName", "")
        if call == "CreateHyperParameterTuningJob":
            if name in self.jobs:
                raise Refusal(400, "ResourceInUse", "A tuning job of that name exists")
            for parent in told.get("WarmStartConfig", {}).get("ParentHyperParameterTuningJobs", []):
                self._check_parent(told, self.jobs.get(parent["HyperParameterTuningJobName"]))
            self.jobs[name] = TuningJob(told)
            threading.Thread(target=self._work, args=(self.jobs[name],), daemon=True).start()
            return {"HyperParameterTuningJobArn": self._arn(name)}
        job = self.jobs.get(name)
        if job is None:
            raise Refusal(400, "ResourceNotFound", "Amazon SageMaker can't find a tuning job of that name")
        if call == "DescribeHyperParameterTuningJob":
            return self._told(job)
        if call == "ListTrainingJobsForHyperParameterTuningJob":
            begin = int(told.get("NextToken", 0))
            names = list(job.tried)[begin : begin + _PAGE]
            more = {"NextToken": str(begin + _PAGE)} if begin + _PAGE < len(job.tried) else {}
            return {"TrainingJobSummaries": [self._summary(job, each) for each in names], **more}
        if call == "StopHyperParameterTuningJob":
            self._stop(job)
            return {}
        raise Refusal(400, "UnknownOperationException", call)

    def stop_all(self) -> None:
        for job in self.jobs.values():
            self._stop(job)

    def objective(self, job: TuningJob, name: str) -> float | None:
        """The last value that the training job has printed."""
        metric = job.request["HyperParameterTuningJobConfig"]["HyperParameterTuningJobObjective"][
            "MetricName"
        ]
        about = job.request["TrainingJobDefinition"]["AlgorithmSpecification"]["MetricDefinitions"]
        pattern = next(each["Regex"] for each in about if each["Name"] == metric)
        lines = [line for lines in self._plane.jobs[name].lines.values() for line in lines]
        found = [match[1] for line in lines if (match := re.search(pattern, line))]
        return float(found[-1]) if found else None

    @staticmethod
    def _check_parent(told: dict[str, Any], parent: TuningJob | None) -> None:
        """As https://docs.aws.amazon.com/sagemaker/latest/dg/automatic-model-tuning-warm-start.html says."""
        if parent is None:
            raise Refusal(400, "ValidationException", "Requested resource not found.")
        if parent.status in ("InProgress", "Stopping"):
            raise Refusal(400, "ValidationException", "Parent jobs must be in a terminal state.")
        parameters = [
            {
                *each["TrainingJobDefinition"]["StaticHyperParameters"],
                *(one["Name"] for several in _ranges(each).values() for one in several),
            }
            for each in (told, parent.request)
        ]
        if parameters[0] != parameters[1]:
            said = "Hyperparameters of the parent jobs and of the new job must be the same: "
            raise Refusal(400, "ValidationException", said + ", ".join(parameters[0] ^ parameters[1]))
        kinds = [
            {one["Name"]: kind for kind, several in _ranges(each).items() for one in several}
            for each in (told, parent.request)
        ]
        if any(kinds[1].get(name, kind) != kind for name, kind in kinds[0].items()):
            raise Refusal(400, "ValidationException", "The type of a hyperparameter must not change.")

    def _stop(self, job: TuningJob) -> None:
        if job.status == "InProgress":
            job.status = "Stopping"
            job.stopped.set()
            for name in list(job.tried):
                self._plane.stop(name)

    def _work(self, job: TuningJob) -> None:
        config = job.request["HyperParameterTuningJobConfig"]
        limits = config["ResourceLimits"]
        points = self._points(config)
        most, running = limits.get("MaxNumberOfTrainingJobs", math.inf), limits["MaxParallelTrainingJobs"]
        try:
            while not job.stopped.is_set():
                active = [name for name in job.tried if self._plane.jobs[name].active]
                if len(active) < running and len(job.tried) < most:
                    values = next(points, None)
                    if values is not None:
                        self._begin(job, values)
                        continue
                    most = len(job.tried)
                if not active:
                    break
                time.sleep(0.05)
            while any(self._plane.jobs[name].active for name in job.tried):
                time.sleep(0.05)
            self.reads.wait()
        except Exception as error:
            job.reason, job.status = f"{type(error).__name__}: {error}", "Failed"
            self._plane.own_faults.note("a tuning job")
            return
        job.status = "Stopped" if job.stopped.is_set() else "Completed"

    def _begin(self, job: TuningJob, values: dict[str, str]) -> None:
        definition = dict(job.request["TrainingJobDefinition"])
        static = definition.pop("StaticHyperParameters", {})
        definition["ResourceConfig"] = definition.pop("HyperParameterTuningResourceConfig")
        number = len(job.tried) + 1
        name = f"{job.request['HyperParameterTuningJobName']}-{number:03d}-{secrets.token_hex(4)}"
        request = {**definition, "TrainingJobName": name, "HyperParameters": {**static, **values}}
        self._plane.answer("CreateTrainingJob", request)
        job.tried[name] = values

    @staticmethod
    def _points(config: dict[str, Any]) -> Any:
        ranges = config["ParameterRanges"]
        choices = {each["Name"]: each["Values"] for each in ranges["CategoricalParameterRanges"]}
        if config["Strategy"] == "Grid":
            for point in itertools.product(*choices.values()):
                yield dict(zip(choices, point, strict=True))
            return
        draw = random.Random(2 + int(config.get("RandomSeed", 1)))
        while True:
            values = {name: draw.choice(several) for name, several in choices.items()}
            for kind in ("Continuous", "Integer"):
                for each in ranges[f"{kind}ParameterRanges"]:
                    low, high = float(each["MinValue"]), float(each["MaxValue"])
                    if each["ScalingType"] == "Logarithmic":
                        value = math.exp(draw.uniform(math.log(low), math.log(high)))
                    elif each["ScalingType"] == "ReverseLogarithmic":
                        value = 1 - math.exp(draw.uniform(math.log(1 - high), math.log(1 - low)))
                    else:
                        value = draw.uniform(low, high)
                    values[each["Name"]] = str(round(value)) if kind == "Integer" else repr(value)
            yield values

    def _summary(self, job: TuningJob, name: str) -> dict[str, Any]:
        told = self._plane.jobs[name].described()
        kept = ("TrainingJobName", "TrainingJobArn", "TrainingJobStatus", "CreationTime")
        often = ("TrainingStartTime", "TrainingEndTime", "FailureReason")
        summary = {key: told[key] for key in (*kept, *often) if key in told}
        is_read = self.reads.is_set() and not self._plane.jobs[name].active
        value = self.objective(job, name) if is_read else None
        summary["ObjectiveStatus"] = "Pending" if not is_read else "Failed" if value is None else "Succeeded"
        if value is not None:
            config = job.request["HyperParameterTuningJobConfig"]
            metric = config["HyperParameterTuningJobObjective"]["MetricName"]
            summary["FinalHyperParameterTuningJobObjectiveMetric"] = {"MetricName": metric, "Value": value}
        return {**summary, "TunedHyperParameters": job.tried[name]}

    def _told(self, job: TuningJob) -> dict[str, Any]:
        name = job.request["HyperParameterTuningJobName"]
        states = [self._plane.jobs[each].status for each in job.tried]
        told = {
            **job.request,
            "HyperParameterTuningJobArn": self._arn(name),
            "HyperParameterTuningJobStatus": job.status,
            "CreationTime": job.created,
            "TrainingJobStatusCounters": {
                "Completed": states.count("Completed"),
                "InProgress": states.count("InProgress"),
                "Stopped": states.count("Stopped"),
            },
            "ObjectiveStatusCounters": {},
        }
        if job.best is not None:
            told["BestTrainingJob"] = job.best
        return told if job.reason is None else {**told, "FailureReason": job.reason}

    def _arn(self, name: str) -> str:
        return f"arn:aws:sagemaker:{self._plane.region}:123456789012:hyper-parameter-tuning-job/{name}"
