"""The copy of rank 0's metrics in the workspace's MLflow, so that the studio charts them on the job's page.

The workspace keeps a job as a run of that name, and implements MLflow's own protocol.
https://learn.microsoft.com/azure/machine-learning/how-to-use-mlflow-configure-tracking
https://mlflow.org/docs/latest/api_reference/rest-api.html#log-batch
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from ...errors import DistError, Unreachable
from ...folder import RunFolder
from ...record import reader
from ...record.metrics.points import to_number
from ..job_watch import CredentialsExpired
from .workspace import MlWorkspace

__all__ = ["StudioMetrics"]

_EVERY_S = 5.0
_MOST = 1000
"""Largest number of metrics in one request."""
_MOST_READ = 4 << 20


class StudioMetrics:
    """The metrics of one run, in the process that watches it. For one thread.

    A new process sends everything again. MLflow treats a repeated point of the same step as the same point.
    """

    def __init__(self, workspace: MlWorkspace, folder: RunFolder) -> None:
        self._workspace, self._folder = workspace, folder
        self._attempt = self._offset = 0
        self._steps: dict[str, int] = {}
        self._waiting: list[dict[str, Any]] = []
        self._told = 0.0
        self._refused = False

    def tell(self, job: str, *, all_of_it: bool = False) -> None:
        """Send new metrics some seconds after the last time, or at once with `all_of_it`. Blocks.

        Never raises.

        Metrics that cannot be sent are kept for the next call.
        """
        if self._refused or (not all_of_it and time.monotonic() - self._told < _EVERY_S):
            return
        self._told = time.monotonic()
        try:
            while self._read() or self._waiting:
                batch = self._waiting[:_MOST]
                if batch:
                    asked = {"run_id": job, "metrics": batch}
                    self._workspace.mlflow("runs/log-batch", "write metrics to the studio", asked)
                    del self._waiting[: len(batch)]
        except DistError as error:
            self._refused = not isinstance(error, (Unreachable, CredentialsExpired))
            if self._refused or all_of_it:
                print(f"the studio does not have all metrics of {job}: {error}", flush=True)

    def _read(self) -> bool:
        """Read a piece of the new metrics. Returns whether there may be more."""
        try:
            with open(self._folder.rank(self._attempt, 0).events, "rb") as file:
                file.seek(self._offset)
                data = file.read(_MOST_READ)
        except OSError:
            data = b""
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        for event in reader.parse_events(data, 0, self._attempt):
            if event.kind == "metric":
                self._take(event)
        if not data and self._attempt < max(self._folder.attempts(), default=0):
            self._attempt, self._offset = self._attempt + 1, 0
            return True
        return bool(data)

    def _take(self, event: reader.Event) -> None:
        values = event.data.get("values")
        for name, told in (values if isinstance(values, Mapping) else {}).items():
            try:
                value, step = to_number(told), event.data.get("step")
            except (TypeError, ValueError):
                continue
            step = self._steps.get(name, 0) if step is None else int(step)
            self._steps[name] = step + 1
            if math.isfinite(value):
                when = int(event.time * 1000)
                self._waiting.append({"key": name[:250], "value": value, "timestamp": when, "step": step})
