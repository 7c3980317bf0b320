"""Tuning jobs in the account: described, and recognized as a run's. Every call blocks.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeHyperParameterTuningJob.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from ....folder import RunFolder
from ....hosts.links.mailbox import run_key
from ...job_watch import NotThere
from ..account import AwsAccount
from ..options import SageMakerOptions
from .request import tuning_names

__all__ = ["describe_tuning", "find_tuning", "stop_tuning", "training_jobs"]


def describe_tuning(account: AwsAccount, name: str) -> Mapping[str, Any]:
    """Return SageMaker's description of a tuning job. Raises NotThere."""
    with account.asking(f"look after the tuning job {name!r}") as client:
        told: Mapping[str, Any] = client.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        return told


def _is_own(told: Mapping[str, Any], folder: RunFolder) -> bool:
    """Return whether a tuning job belongs to the run: its name or its hosts' key of the mailbox says so."""
    if str(told["HyperParameterTuningJobName"]).endswith(folder.id):
        return True
    env = (told.get("TrainingJobDefinition") or {}).get("Environment") or {}
    return bool(env.get("JUPYTER_DIST_MAILBOX_KEY") == run_key(folder).hex())


def find_tuning(account: AwsAccount, asked: SageMakerOptions, folder: RunFolder) -> Mapping[str, Any] | None:
    """Return the description of a run's tuning job, or None if it has none."""
    for name in tuning_names(asked, folder.id):
        with contextlib.suppress(NotThere):
            told = describe_tuning(account, name)
            if _is_own(told, folder):
                return told
    return None


def training_jobs(account: AwsAccount, name: str) -> list[Mapping[str, Any]]:
    """Return the summaries of a tuning job's training jobs, in the order of their creation."""
    found: list[Mapping[str, Any]] = []
    more: dict[str, Any] = {}
    while True:
        with account.asking(f"list the training jobs of {name!r}") as client:
            told = client.list_training_jobs_for_hyper_parameter_tuning_job(
                HyperParameterTuningJobName=name,
                MaxResults=100,
                SortBy="CreationTime",
                SortOrder="Ascending",
                **more,
            )
        found += told["TrainingJobSummaries"]
        if not told.get("NextToken"):
            return found
        more = {"NextToken": told["NextToken"]}


def stop_tuning(account: AwsAccount, name: str) -> None:
    """Stop the tuning job and its training jobs. Does not wait."""
    with account.asking(f"stop the tuning job {name!r}") as client:
        client.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
