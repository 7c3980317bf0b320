"""The Ray cluster on which the trials of a tuning run are placed: a running one, or one of the tuning run."""

from __future__ import annotations

import contextlib
import json

from ... import folder as folders
from ...backends.ray import connection, local_cluster
from ...backends.ray.options import RayOptions
from ...folder import RunFolder, write_json
from ...job import Job
from ...worker import layout

__all__ = ["TrialsRay"]

_RECORD = layout.hidden("ray-tune.json")


class TrialsRay:
    """Ray of one tuning run. A new supervisor finds it again in the run's folder."""

    def __init__(self, job: Job, parallel: int) -> None:
        assert job.tuning is not None
        self.asked = RayOptions(**job.tuning["trial"]["options"])
        self._ranks = int(job.tuning["trial"]["world_size"]) * parallel
        self._folder = RunFolder(folders.runs_root() / job.id)
        self._own: int | None = None

    def find(self) -> str:
        """Return the address. Starts a Ray if there is none, which takes seconds. Raises DistError."""
        record = self._folder.path / _RECORD
        with contextlib.suppress(OSError, ValueError, KeyError):
            known = json.loads(record.read_bytes())
            self._own = known["embedded"]
            return str(known["address"])
        address = connection.find_address(self.asked.address)
        if address is None:
            address, self._own = local_cluster.start(self._folder, self.asked, self._ranks)
        write_json(record, {"address": address, "embedded": self._own})
        return address

    def end(self) -> None:
        """End the Ray if the tuning run has started it."""
        if self._own is not None:
            local_cluster.end(self._own)
