"""What backends have in common that show what somebody else has started: they start nothing."""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping
from typing import Any

from ..folder import RunFolder
from ..job import Job
from ._base import Handle

__all__ = ["ShownJob", "seconds"]


class ShownJob:
    """The handle of its run is the run's folder, its ranks as far as they are known, and its options."""

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        return []

    def detect(self) -> dict[str, Any]:
        return {}

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        return {"folder": str(folder.path), "ranks": job.world_size, **job.options}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        return self.submit(job, folder, attempt)  # nothing was started, nor will be

    def ask(self, handle: Handle, rank: int | None, verb: str) -> None:
        pass


def seconds(stamp: str | None) -> float | None:
    """A time as services write it, such as 2026-01-31T12:00:00Z or with digits behind the seconds, since the
    epoch; None where there is none."""
    try:
        return float(calendar.timegm(time.strptime(str(stamp)[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None
