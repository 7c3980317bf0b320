"""Jobs that a platform's own tuning has started, which the runs of its trials adopt."""

from __future__ import annotations

from ..folder import RunFolder, write_bytes
from ..hosts.links.mailbox import run_key
from ..job import Job
from ..record import reader
from ..worker import layout

__all__ = ["adopted_job", "take_key"]


def adopted_job(job: Job, known_as: str) -> str | None:
    """The job of a trial, which a service has started, by the name that it has in the trial's handle
    (tuning/engines). None where the run starts its own."""
    handle = (job.trial or {}).get("handle")
    return None if handle is None else str(handle[known_as])


def take_key(folder: RunFolder) -> None:
    """All hosts of a tuning have the same key, which is the tuning run's: make it this trial's."""
    trial = reader.job(folder).trial
    assert trial is not None
    key = run_key(RunFolder(folder.path.parent / str(trial["of"])))
    write_bytes(folder.path / layout.KEY, key.hex().encode())
