"""The backend `sagemaker`: ranks in an Amazon SageMaker training job, from a JupyterLab anywhere.

A job's containers run our host program in place of a training script (backends/platform_entrypoint.py). The
host program runs our agent. S3 has the mailbox between the hosts and this machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from ...errors import DistError
from ...folder import RunFolder
from ...job import Job
from ...search.spec import Search
from ..interface import Capabilities, Extensions, Options, PlatformSearch
from ..platform_job import PlatformJob
from ..platform_trial import adopted_job
from .account import AwsAccount
from .checks import check_training, region_for
from .client import SageMakerClient, request_of, tuning_of
from .experiment_rows import experiment_rows
from .instance_types import list_price
from .jobs import TrainingJob
from .model_download import fetch_model
from .options import SageMakerOptions
from .request import job_names, mailbox_of, script_arguments
from .tuning.parents import with_parents
from .tuning.request import check_search, tuning_names

__all__ = ["SageMaker"]


def _shown_env(url: str, run: str) -> dict[str, str]:
    return {
        "JUPYTER_DIST_MAILBOX": url,
        "JUPYTER_DIST_MAILBOX_RUN": run,
        "JUPYTER_DIST_MAILBOX_KEY": "<the run's key>",
        "JUPYTER_DIST_MAILBOX_CODE": "<the code's hash>",
    }


def _fetch_model(job: Job, folder: RunFolder, into: Path) -> None:
    """Unpack the content of dist.model_dir(), which SageMaker keeps. Blocks. Raises DistError."""
    asked = SageMakerOptions(**job.options)
    account = AwsAccount(asked.profile, region_for(asked))
    platform_client = SageMakerClient(account, asked, job.id, adopted_job(job, "training_job"))
    fetch_model(account, platform_client.names(folder.attempts()[::-1]), into)


def _price(world_size: int, options: Mapping[str, Any]) -> float | None:
    asked = SageMakerOptions(**options)
    each = None if asked.instance_type is None else list_price(asked.instance_type)
    return None if each is None else each * asked.instances(world_size)


def _search_request(search: Search, trial: Job, timeout_s: float | None) -> dict[str, Any]:
    """Return the request for a tuning job that starts trials like this one. Pure."""
    asked = SageMakerOptions(**trial.options)
    region = region_for(asked)
    env = _shown_env(mailbox_of(asked, region), trial.id)
    name = tuning_names(asked, trial.id)[0]
    return {"create_hyper_parameter_tuning_job": tuning_of(search, trial, name, asked, region, env)}


class SageMaker(PlatformJob[TrainingJob]):
    """The run's hosts are the containers of one training job, which serves all attempts of the run."""

    name: ClassVar[str] = "sagemaker"
    options: ClassVar[type[Options]] = SageMakerOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        outlives=True,
        apart=True,
        visible=False,
        submit_limit_s=300.0,
        stop_grace_s=30.0,
        interrupts=True,
        sessions=True,
    )
    extensions: ClassVar[Extensions] = Extensions(
        arguments=lambda options: script_arguments(SageMakerOptions(**options).hyperparameters),
        fetch_model=_fetch_model,
        price=_price,
        experiment=experiment_rows,
        search=PlatformSearch(
            packages=lambda strategy: [("boto3", 'pip install "jupyter-dist[sagemaker]"')],
            check=lambda search, options: check_search(search, SageMakerOptions(**options)),
            request=_search_request,
            scalings=True,
            warm_start=with_parents,
        ),
    )

    def __init__(self) -> None:
        super().__init__(TrainingJob, "training_job", _platform_client)

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        return check_training(world_size, SageMakerOptions(**options))

    def detect(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with contextlib.suppress(metadata.PackageNotFoundError, DistError):
            found["boto3"] = metadata.version("boto3")
            import botocore.exceptions
            import botocore.session

            session = botocore.session.Session()
            found["profiles"] = ", ".join(session.available_profiles) or "none"
            try:
                lacks = "" if session.get_credentials() else "There are no AWS credentials"
            except botocore.exceptions.BotoCoreError as error:  # such as AWS_PROFILE with an unknown profile
                lacks = f"The AWS credentials cannot be read ({error})"
            if lacks:
                found["no_site"] = f"{lacks}. In a terminal: aws configure sso. Or write --profile"
        return found

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        asked = SageMakerOptions(**job.options)
        region = region_for(asked)
        url = mailbox_of(asked, region)
        env = _shown_env(url, job.id)
        return {
            "hosts": asked.host_list(job.world_size),
            "mailbox": url,
            "create_training_job": request_of(job, job_names(asked, job.id, attempt)[0], asked, region, env),
        }


def _platform_client(job: Job, folder: RunFolder) -> SageMakerClient:
    asked = SageMakerOptions(**job.options)
    account, adopted = AwsAccount(asked.profile, region_for(asked)), adopted_job(job, "training_job")
    return SageMakerClient(account, asked, folder.id, adopted)
