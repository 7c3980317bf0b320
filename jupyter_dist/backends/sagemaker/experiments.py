"""A run's entry in SageMaker Experiments, in the format of the SDK's `Run`.

The entry has parameters, metrics and artifacts. An experiment contains trials, and a trial contains
components. The run is one component. Its name follows the SDK's pattern: EXPERIMENT-RUN in the trial
Default-Run-Group-EXPERIMENT. The training job's request names it.
https://sagemaker.readthedocs.io/en/v2.257.0/experiments/sagemaker.experiments.html
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DistError
from ...folder import RunFolder
from ...job import Job, State
from ...record import reader
from ...record.metrics import points as metric_points
from .account import AwsAccount
from .jobs import parameter
from .lineage import note_lineage
from .options import SageMakerOptions

__all__ = ["begin_entry", "end_entry", "entry_name", "trial_name"]

_MOST = 120
_TAG = {"Key": "sagemaker:trial-component-source", "Value": "run"}
"""Tag with which the console lists a component as a run."""
_BATCH = 10
"""Largest number of values in one call."""
_MOST_METRICS, _MOST_POINTS = 20, 100
_STATES = {State.SUCCEEDED: "Completed", State.STOPPED: "Stopped"}


def entry_name(asked: SageMakerOptions, run: str) -> str | None:
    """Return the name of a run's component, or None if the run has no entry."""
    return None if asked.experiment is None else f"{asked.experiment[:59]}-{run}".lower()


def trial_name(asked: SageMakerOptions) -> str:
    return asked.trial or f"Default-Run-Group-{asked.experiment}"[:_MOST]


def begin_entry(
    account: AwsAccount, asked: SageMakerOptions, job: Job, more: Mapping[str, Any] | None = None
) -> None:
    """Create the entry, and the experiment and the trial if needed. Repeatable. Raises DistError.

    `more`: further parameters of the entry.
    """
    name = entry_name(asked, job.id)
    if name is None:
        return
    experiment, trial = str(asked.experiment), trial_name(asked)
    _have(account, "experiment", ExperimentName=experiment)
    _have(account, "trial", {"ExperimentName": experiment}, TrialName=trial)
    about = {
        "DisplayName": asked.trial_component or job.id,
        "Status": {"PrimaryStatus": "InProgress"},
        "StartTime": _time(job.created),
        "Parameters": _parameters(asked, job, more or {}),
        "InputArtifacts": {name: {"Value": address} for name, address in _inputs(asked).items()},
        "Tags": [_TAG],
    }
    _have(account, "trial_component", about, TrialComponentName=name)
    with account.asking(f"list the run in the trial {trial!r}") as client:
        client.associate_trial_component(TrialComponentName=name, TrialName=trial)


def end_entry(
    account: AwsAccount,
    asked: SageMakerOptions,
    job: Job,
    folder: RunFolder,
    model: str | None,
    *,
    more: Mapping[str, Any] | None = None,
    points: Sequence[Mapping[str, Any]] | None = None,
) -> str | None:
    """Record the run's end, and the metrics of its ranks. Returns a line for the user. Never raises.

    `model`: the address of the run's model. `more`: all further parameters of the entry. `points`: metrics in
    place of those of the ranks.
    """
    name = entry_name(asked, job.id)
    if name is None:
        return None
    status = reader.status(folder)
    final = status.state if status.verdict is None else status.verdict.state
    reason = status.reason if status.verdict is None else status.verdict.reason
    told: dict[str, Any] = {"PrimaryStatus": _STATES.get(final, "Failed")}
    if reason:
        told["Message"] = reason[:1024]
    artifacts = {} if model is None else {"SageMaker.ModelArtifact": {"Value": model}}
    try:
        with account.asking("write to the experiment") as client:
            updated = client.update_trial_component(
                TrialComponentName=name,
                Status=told,
                EndTime=datetime.datetime.now(datetime.timezone.utc),
                OutputArtifacts=artifacts,
                **({} if more is None else {"Parameters": _parameters(asked, job, more)}),
            )
        with account.asking("write metrics to the experiment", "sagemaker-metrics") as client:
            points = _points(folder) if points is None else points
            for begin in range(0, len(points), _BATCH):
                client.batch_put_metrics(TrialComponentName=name, MetricData=points[begin : begin + _BATCH])
        note_lineage(account, str(updated["TrialComponentArn"]), _inputs(asked), model)
    except (DistError, OSError) as error:
        return f"its entry in experiment {asked.experiment!r} is not whole: {error}"
    return f"in experiment {asked.experiment!r} as {name}"


def _have(account: AwsAccount, kind: str, about: Mapping[str, Any] | None = None, **name: str) -> None:
    """Create the object of that name, unless it exists."""
    what = f"{kind.replace('_', ' ')} {next(iter(name.values()))!r}"
    with contextlib.suppress(_AlreadyThere), account.asking(f"make the {what}") as client:
        try:
            getattr(client, f"create_{kind}")(**name, **(about or {}))
        except client.exceptions.ClientError as error:
            if "already exist" in str(error) or "must be unique" in str(error):
                raise _AlreadyThere from error
            raise


class _AlreadyThere(DistError):
    """Somebody else has created it meanwhile."""


def _inputs(asked: SageMakerOptions) -> dict[str, str]:
    return {name: text.split(",")[0] for name, text in asked.input.items()}


def _parameters(asked: SageMakerOptions, job: Job, more: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {
        **{name: parameter(text) for name, text in asked.hyperparameters.items()},
        "np": job.world_size,
        "instance_type": asked.instance_type,
        "instance_count": asked.instance_count,
        **more,
        **(job.trial or {}).get("parameters", {}),
    }
    return {
        name: {"NumberValue": float(value)}
        if isinstance(value, int | float) and not isinstance(value, bool)
        else {"StringValue": str(value)[:2500]}
        for name, value in given.items()
    }


def _points(folder: RunFolder) -> Sequence[dict[str, Any]]:
    """Return the thinned series of each metric, of the lowest rank that has logged it."""
    series: dict[str, dict[int, list[Any]]] = {}
    for point in metric_points.points(folder):
        if math.isfinite(point.value):
            series.setdefault(point.name, {}).setdefault(point.rank, []).append(point)
    found = []
    for name, ranks in list(series.items())[:_MOST_METRICS]:
        points = ranks[min(ranks)]
        every = -(-len(points) // _MOST_POINTS)
        for index, point in enumerate(points):
            if index % every and index + 1 < len(points):
                continue
            step = index if point.step is None else point.step
            when = _time(point.time)
            value = {"MetricName": name[:255], "Timestamp": when, "Value": point.value}
            found.append({**value, "Step": max(0, min(step, 2**31 - 1))})
    return found


def _time(when: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(when, datetime.timezone.utc)
