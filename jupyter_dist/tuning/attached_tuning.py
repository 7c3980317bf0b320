"""Backend of a run that shows a tuning job of SageMaker which somebody else has started. It starts nothing.

The trials are those that the service lists, with the objectives that the service has read. They are no runs.
`attach` shows the training job of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..backends.attached_job import AttachedJob, JobEnd, JobStatus, showing
from ..backends.interface import Capabilities, Handle, Options
from ..backends.sagemaker.account import AwsAccount, region_of
from ..backends.sagemaker.attached import SeenJobOptions
from ..backends.sagemaker.jobs import parameter, second
from ..backends.sagemaker.tuning.jobs import describe_tuning, stop_tuning, training_jobs
from ..errors import DistError, InputError
from ..folder import RunFolder
from ..job import Job, State
from ..record import trials
from ..record.trials import FAILED, PRUNED, RUNNING, STOPPED, SUCCEEDED, Trial
from ..search.dimensions import Choice, Dimension, Real, Value, Whole
from ..search.spec import Search
from ..text.format import count
from .ledger import Ledger
from .look_times import LookTimes

__all__ = ["AttachedTuning"]

_STATES = {"Completed": State.SUCCEEDED, "Stopped": State.STOPPED}
_BEGINS = ("InProgress", "Stopping")


class AttachedTuning(AttachedJob):
    """Shows one tuning job."""

    name: ClassVar[str] = "sagemaker-tuning"
    options: ClassVar[type[Options]] = SeenJobOptions
    capabilities: ClassVar[Capabilities] = showing(stop_grace_s=150.0)

    def __init__(self) -> None:
        super().__init__(_Client, _end)

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        super().stop(job, folder, handle, kill=kill)
        if isinstance(self._client, _Client):
            self._client.times.expect_news()

    @staticmethod
    def adopt(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run's job: fields of `Job`. `given`: profile and region. Blocks.

        Raises InputError if the region is unknown, and other DistErrors.
        """
        profile = given.get("profile")
        region = region_of(given.get("region"), profile)
        if region is None:
            raise InputError(f"the region of {name} is unknown. Add --region, or set AWS_REGION")
        told = describe_tuning(AwsAccount(profile, region), name)
        search, definition = _search(told), _definitions(told)[0]
        about = [f"# the tuning job {name} in {region}, which was started elsewhere"]
        about += [f"{key} = {text}" for key, text in _fixed(definition).items()]
        where = definition.get("HyperParameterTuningResourceConfig") or definition.get("ResourceConfig") or {}
        options = SeenJobOptions(job=name, profile=profile, region=region).model_dump()
        trial = {
            "backend": "sagemaker",
            "world_size": int(where.get("InstanceCount") or 1),
            "options": options,
        }
        return {
            "world_size": 1,
            "source": "\n".join(about),
            "label": name,
            "options": options,
            "tuning": {"search": search.to_json(), "trial": trial, "cold": True, "imports": []},
        }


class _Client:
    """Reads one tuning job, and writes its trials to the ledger of the run."""

    cursor: None = None

    def __init__(self, job: Job, folder: RunFolder, cursor: Any) -> None:
        asked = SeenJobOptions(**job.options)
        self._name, self._account = asked.job, AwsAccount(asked.profile, asked.region)
        assert job.tuning is not None
        self._search = trials.search_of(job.tuning)
        describe_tuning(self._account, self._name)
        self._ledger = Ledger(folder)
        known = trials.read(folder).trials
        self._states = {str((trial.handle or {}).get("training_job")): trial.state for trial in known}
        """The state of each trial in the ledger, by its job's name, in the order of the trials' numbers."""
        self._seen, self.times = JobStatus(State.PENDING, (), None), LookTimes()

    def look(self) -> JobStatus:
        if self.times.is_due:
            self._seen = self._look()
            self.times.looked((self._seen, tuple(self._states.values())))
        return self._seen

    def _look(self) -> JobStatus:
        try:
            told = describe_tuning(self._account, self._name)
            jobs = training_jobs(self._account, self._name)  # after the state: if it is final, these are all
        except DistError as error:
            return JobStatus(self._seen.state, (), str(error))
        status = str(told["HyperParameterTuningJobStatus"])
        is_over = status not in _BEGINS
        for each in jobs:
            self._note(each, self._search.prunes and status not in ("Stopping", "Stopped"), is_over=is_over)
        state = State.RUNNING if jobs else State.PENDING
        detail = f"tuning job {self._name}: {status}, {count(len(jobs), 'training job')}"
        end = None
        if is_over and RUNNING not in self._states.values():
            why = " ".join(str(told.get("FailureReason") or "").split())
            said = f"tuning job {self._name} has ended: {status}" + (f": {why[:1000]}" if why else "")
            end = JobEnd(
                _STATES.get(status, State.FAILED), said, second(told.get("HyperParameterTuningEndTime")), 0
            )
        return JobStatus(state, (), detail, end)

    def _note(self, job: Mapping[str, Any], stops_early: bool, *, is_over: bool) -> None:
        """Write what is new about a training job to the ledger.

        `stops_early`: the service ends jobs early, and nobody has stopped the tuning job. `is_over`: the
        tuning job has ended, so that no objective follows.
        """
        name, status = str(job["TrainingJobName"]), str(job["TrainingJobStatus"])
        if name not in self._states:
            tuned = job.get("TunedHyperParameters") or {}
            values = {key: _value(one, tuned[key]) for key, one in self._search.space.items() if key in tuned}
            began = second(job.get("TrainingStartTime") or job.get("CreationTime"))
            handle = {"training_job": name}
            self._ledger.begun(Trial(len(self._states), "", values, started=began or 0.0, handle=handle))
            self._states[name] = RUNNING
        if self._states[name] != RUNNING or status in _BEGINS:
            return
        if status == "Completed" and job.get("ObjectiveStatus") == "Pending" and not is_over:
            return  # the service still reads the objective
        objective = (job.get("FinalHyperParameterTuningJobObjectiveMetric") or {}).get("Value")
        reason = " ".join(str(job.get("FailureReason") or "").split())[:1000] or None
        state = {"Completed": SUCCEEDED, "Stopped": PRUNED if stops_early else STOPPED}.get(status, FAILED)
        if state == SUCCEEDED and objective is None:
            state, reason = FAILED, f"it has printed no {self._search.metric}"
        value = None if state != SUCCEEDED or objective is None else float(objective)
        number, over = list(self._states).index(name), second(job.get("TrainingEndTime"))
        self._ledger.ended(Trial(number, "", {}, state, value, reason=reason, ended=over))
        self._states[name] = state

    def close(self) -> str | None:
        self._ledger.close()
        return None


def _end(options: Mapping[str, Any]) -> None:
    asked = SeenJobOptions(**options)
    stop_tuning(AwsAccount(asked.profile, asked.region), asked.job)


def _search(told: Mapping[str, Any]) -> Search:
    """Return the search of a tuning job. A job with several algorithms has the parameters of all."""
    config = told["HyperParameterTuningJobConfig"]
    ranges = [config.get("ParameterRanges"), *(one.get("HyperParameterRanges") for one in _definitions(told))]
    objectives = [
        config.get("HyperParameterTuningJobObjective"),
        *(one.get("TuningObjective") for one in _definitions(told)),
    ]
    objective: Mapping[str, Any] = next(filter(None, objectives), {})
    limits = config.get("ResourceLimits") or {}
    parallel = int(limits.get("MaxParallelTrainingJobs") or 1)
    return Search(
        space={name: one for each in filter(None, ranges) for name, one in _space(each).items()},
        goal="max" if objective.get("Type") == "Maximize" else "min",
        metric=str(objective.get("MetricName") or "objective"),
        max_jobs=int(limits.get("MaxNumberOfTrainingJobs") or parallel),
        parallel=parallel,
        strategy=str(config["Strategy"]).lower(),  # type: ignore[arg-type]
        early_stopping=config.get("TrainingJobEarlyStoppingType") == "Auto",
    )


def _definitions(told: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    one = told.get("TrainingJobDefinition")
    return list(told.get("TrainingJobDefinitions") or ()) if one is None else [one]


def _fixed(definition: Mapping[str, Any]) -> dict[str, str]:
    given = definition.get("StaticHyperParameters") or {}
    return {key: text for key, text in given.items() if not key.startswith("sagemaker_")}


def _space(ranges: Mapping[str, Any]) -> dict[str, Dimension]:
    found: dict[str, Dimension] = {}
    for each in ranges.get("CategoricalParameterRanges") or ():
        found[each["Name"]] = Choice(tuple(str(parameter(text)) for text in each["Values"]))
    for each in ranges.get("ContinuousParameterRanges") or ():
        low, high = float(each["MinValue"]), float(each["MaxValue"])
        found[each["Name"]] = Real(low, high, each.get("ScalingType") == "Logarithmic")
    for each in ranges.get("IntegerParameterRanges") or ():
        ends = int(float(each["MinValue"])), int(float(each["MaxValue"]))
        found[each["Name"]] = Whole(*ends, each.get("ScalingType") == "Logarithmic")
    return found


def _value(one: Dimension, text: str) -> Value:
    if isinstance(one, Choice):
        return str(parameter(text))
    number = float(parameter(text))
    return int(number) if isinstance(one, Whole) else number
