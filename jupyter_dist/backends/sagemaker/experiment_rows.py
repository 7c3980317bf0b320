"""The runs of an experiment, as SageMaker knows them: a row for each component.

The equivalent of the SDK's ExperimentAnalytics.
https://sagemaker.readthedocs.io/en/v2.257.0/api/training/analytics.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import DistError
from ...job import Job
from .account import AwsAccount
from .checks import region_for
from .options import SageMakerOptions

__all__ = ["experiment_rows"]


def experiment_rows(job: Job) -> list[dict[str, Any]]:
    """Return the rows of the run's experiment, the newest first. Blocks. Raises DistError."""
    asked = SageMakerOptions(**job.options)
    if asked.experiment is None:
        raise DistError(f"run {job.id} is in no experiment. Name one with --experiment")
    account = AwsAccount(asked.profile, region_for(asked))
    found: list[Mapping[str, Any]] = []
    more: dict[str, Any] = {}
    of = {"Name": "Parents.ExperimentName", "Operator": "Equals", "Value": asked.experiment}
    while True:
        with account.asking(f"read the experiment {asked.experiment!r}") as client:
            told = client.search(
                Resource="ExperimentTrialComponent",
                SearchExpression={"Filters": [of]},
                SortBy="CreationTime",
                SortOrder="Descending",
                MaxResults=100,
                **more,
            )
        found += [result["TrialComponent"] for result in told["Results"]]
        if not told.get("NextToken"):
            return [_row(one) for one in found]
        more = {"NextToken": told["NextToken"]}


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a component.

    A parameter or metric with the name of one of the first columns gets an underscore. Of other equal names,
    the last one counts.
    """
    artifacts = {**(one.get("InputArtifacts") or {}), **(one.get("OutputArtifacts") or {})}
    first = {
        "name": one.get("DisplayName") or one["TrialComponentName"],
        "component": one["TrialComponentName"],
        "trial": ", ".join(str(each["TrialName"]) for each in one.get("Parents") or ()),
        "state": (one.get("Status") or {}).get("PrimaryStatus"),
        "started": one.get("StartTime"),
        "ended": one.get("EndTime"),
    }
    more = {
        **{name: next(iter(value.values())) for name, value in (one.get("Parameters") or {}).items()},
        **{each["MetricName"]: each.get("Last") for each in one.get("Metrics") or ()},
        **{name: value.get("Value") for name, value in artifacts.items()},
    }
    return {**first, **{f"{name}_" if name in first else name: value for name, value in more.items()}}
