"""A tuning run's own entry in SageMaker Experiments, beside the entries of its trials."""

from __future__ import annotations

import datetime
from typing import Any

from ....folder import RunFolder
from ....job import Job
from ....record import trials
from ....search.spec import Search
from ..account import AwsAccount
from ..experiments import begin_entry, end_entry
from ..options import SageMakerOptions

__all__ = ["begin_tuning_entry", "end_tuning_entry"]


def begin_tuning_entry(account: AwsAccount, asked: SageMakerOptions, job: Job, search: Search) -> None:
    """Create the entry if the options name an experiment. Repeatable. Raises DistError."""
    begin_entry(account, asked, job, _about(search))


def end_tuning_entry(
    account: AwsAccount, asked: SageMakerOptions, job: Job, folder: RunFolder, search: Search
) -> str | None:
    """Record the end of the tuning, its best trial, and the objective of each trial by the trial's number.

    Returns a line for the user. Never raises.
    """
    found = [one for one in trials.read(folder).trials if one.value is not None]
    best = trials.best(found, search)
    of_best = {}
    if best is not None:
        of_best = {f"best_{name}": value for name, value in best.parameters.items()}
        of_best |= {"best_trial": best.number, f"best_{search.metric}": best.value}
    points = [
        {
            "MetricName": search.metric[:255],
            "Timestamp": datetime.datetime.fromtimestamp(one.ended or one.started, datetime.timezone.utc),
            "Value": one.value,
            "Step": one.number,
        }
        for one in found
    ]
    more = {**_about(search), **of_best}
    return end_entry(account, asked, job, folder, None, more=more, points=points)


def _about(search: Search) -> dict[str, Any]:
    return {
        "strategy": search.strategy,
        "objective": f"{search.goal}:{search.metric}",
        "max_jobs": search.max_jobs,
        "parallel": search.parallel,
        **{name: str(one) for name, one in search.space.items()},
    }
