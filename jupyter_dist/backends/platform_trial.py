"""Jobs that a platform's own tuning has started, and that the runs of its trials adopt."""

from __future__ import annotations

from ..folder import RunFolder, write_bytes
from ..hosts.links.mailbox import run_key
from ..job import Job
from ..record import reader
from ..worker import layout

__all__ = ["adopted_job", "take_key"]


def adopted_job(job: Job, known_as: str) -> str | None:
    """Return the name of the job that a service has started for a trial. None: the run starts its own job.

    `known_as`: the key of the name in the trial's handle (tuning/engines).
    """
    handle = (job.trial or {}).get("handle")
    return None if handle is None else str(handle[known_as])


def take_key(folder: RunFolder) -> None:
    """Give the trial its mailbox key: all hosts of a tuning have the key of the tuning run."""
    trial = reader.job(folder).trial
    assert trial is not None
    key = run_key(RunFolder(folder.path.parent / str(trial["of"])))
    write_bytes(folder.path / layout.KEY, key.hex().encode())
