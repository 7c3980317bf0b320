"""Engine of `azureml`: a sweep job, which chooses values and starts the trials' jobs itself.

The chosen values of each trial are in the sweep's tags. Azure's own SDK has long read them there:
HyperDriveRun.get_hyperparameters in azureml-train-core. The service receives the objective like all metrics
of rank 0, through the workspace's MLflow (studio_metrics.py).
https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import folder as folders
from ...backends.azureml.checks import whereabouts
from ...backends.azureml.client import AzureMlClient
from ...backends.azureml.jobs import CommandJob, look_at
from ...backends.azureml.options import AzureMlOptions
from ...backends.azureml.sweep_request import parameters_of, sweep_name
from ...backends.azureml.workspace import MlWorkspace
from ...backends.job_watch import NotThere
from ...job import Job
from ...search.dimensions import Value
from ...search.spec import Search
from .service_engine import ServiceEngine, ServiceStatus

__all__ = ["AzureMlEngine"]


class AzureMlEngine(ServiceEngine):
    """Engine with one sweep job."""

    def __init__(self, search: Search, job: Job) -> None:
        super().__init__(job.id, _Sweep(search, job))


class _Sweep:
    """`Service` of one run."""

    known_as = "command_job"

    def __init__(self, search: Search, job: Job) -> None:
        assert job.tuning is not None
        self._search, self._job = search, job
        self._trial = Job.from_json(job.tuning["trial"])
        self._asked = AzureMlOptions(**self._trial.options)
        self._workspace = MlWorkspace(whereabouts(self._asked, Path(self._trial.cwd)))
        self._name = sweep_name(job.id)
        self.called = f"sweep job {self._name}"

    def begin(self) -> None:
        with contextlib.suppress(NotThere):
            look_at(self._workspace, self._name)
            return
        folder = folders.RunFolder(folders.runs_root() / self._job.id)
        platform_client = AzureMlClient(self._workspace, self._asked, folder)
        platform_client.begin_sweep(self._search, self._job, self._trial, platform_client.mailbox(folder))
        print(f"{self.called}: {self._workspace.page(self._name)}", flush=True)

    def look(self) -> ServiceStatus:
        seen = look_at(self._workspace, self._name)
        # Read after the sweep's state: if the sweep has ended, these are all trials.
        told = self._workspace.history(f"runs/{self._name}", f"look for the trials of {self._name!r}")
        found = _children(self._name, told.get("tags") or {})
        jobs: dict[str, Mapping[str, Value]] = {
            name: parameters_of(self._search, values) for name, values in found.items()
        }
        return ServiceStatus(jobs, self._why_ended(seen, any_job=bool(jobs)))

    def has_ended_early(self, job: str) -> bool:
        with contextlib.suppress(NotThere):
            return look_at(self._workspace, job).stopped
        return False

    def stop(self) -> None:
        self._workspace.jobs("POST", f"{self._name}/cancel", f"cancel the sweep {self._name!r}")

    def close(self) -> None:
        pass

    def _why_ended(self, seen: CommandJob, *, any_job: bool) -> str | None:
        if seen.ended is None:
            return None
        # If all trials have failed, the sweep has failed too. The trials have better reasons.
        return (
            ""
            if seen.status == "Completed" or (seen.status == "Failed" and any_job)
            else f"sweep {seen.ended}"
        )


def _children(sweep: str, tags: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
    """Return the values of each trial's job by its name, from the sweep's tags, in start order."""
    mark = re.compile(rf"(?:_aml_system_)?({re.escape(sweep)}_(\d+))")
    found: dict[int, tuple[str, Mapping[str, Any]]] = {}
    for tag, text in tags.items():
        if (match := mark.fullmatch(tag)) is not None:
            found[int(match[2])] = match[1], json.loads(text)
    return dict(found[number] for number in sorted(found))
