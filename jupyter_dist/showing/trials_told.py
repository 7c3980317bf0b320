"""What a live view says of a tuning run: a line for each trial that has ended, as it ends."""

from __future__ import annotations

import os

from ..folder import RunFolder
from ..job import Job
from ..record import trials
from ..record.trials import RUNNING, Trial
from ..search.spec import Search
from ..text.format import duration, number
from ..text.safe import one_line

__all__ = ["TrialsTold", "parameters_line"]


class TrialsTold:
    """Reads the ledger when it has grown. For a run that tunes nothing there is never anything new."""

    def __init__(self, folder: RunFolder, job: Job) -> None:
        self._folder = folder
        self._search = None if job.tuning is None else trials.search_of(job.tuning)
        self._size = 0
        self._told: set[int] = set()

    def new(self) -> list[str]:
        """A line for each trial that has ended since the last call."""
        if self._search is None:
            return []
        try:
            size = os.stat(self._folder.trials).st_size
        except OSError:
            return []
        if size == self._size:
            return []
        self._size = size
        lines = []
        for trial in trials.read(self._folder).trials:
            if trial.state != RUNNING and trial.number not in self._told:
                self._told.add(trial.number)
                lines.append(_line(trial, self._search))
        return lines


def _line(trial: Trial, search: Search) -> str:
    took = "" if trial.ended is None else f" in {duration(trial.ended - trial.started)}"
    what = (
        one_line(trial.reason or "", 200)
        if trial.value is None
        else f"{one_line(search.metric, 60)} {number(trial.value)}"
    )
    return f"trial {trial.number} {one_line(trial.state, 20)}{took}: {what} ({parameters_line(trial)})"


def parameters_line(trial: Trial) -> str:
    """`lr=0.01, batch=32`."""
    return ", ".join(
        f"{name}={number(value) if isinstance(value, float) else one_line(str(value), 40)}"
        for name, value in trial.parameters.items()
    )
