"""The trials of a tuning run, read from its trial ledger `trials.jsonl`.

The ledger gets a line when a trial begins and a line when it ends. Only the tuning loop writes the ledger
(tuning/ledger.py). Reading needs no running process.

    {"number": 3, "parameters": {"lr": 0.01}, "time": 1763…}
    {"number": 3, "state": "succeeded", "value": 0.93, "steps": [[0, 0.61], …], "reason": null, "time": 1763…}
    {"importance": {"lr": 0.8, "batch": 0.2}}

A scheduler can pause a trial. The trial that continues from its checkpoint is another one, with more fields:

    {"number": 7, "parameters": {"lr": 0.02}, "source": {"trial": 3, "values": 6}, "until": 9, "time": 1763…}
    {"number": 7, "state": "succeeded", "value": 0.95, …, "paused": true}

The sizes of --scaling are trials too. A line of one that has succeeded also has `measured`, a `Measurement`.

Each trial is also a run of its own. The run's id follows from the trial's number (`folder.trial_id`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..folder import RunFolder, trial_id
from ..search.spec import Search
from .metrics.points import to_number
from .scaling.measurement import Measurement

__all__ = ["Source", "Trial", "TrialLedger", "best", "of_parents", "overall_best", "read", "search_of"]

RUNNING, SUCCEEDED, PRUNED, FAILED, STOPPED = "running", "succeeded", "pruned", "failed", "stopped"


@dataclass(frozen=True)
class Source:
    """What a trial continues from: the checkpoint of a trial that was paused."""

    trial: int
    values: int
    """Number of values of the objective until then, with those of the trials before."""


@dataclass(frozen=True)
class Trial:
    """One trial. `value` is its objective, and is None unless the trial has succeeded."""

    number: int
    run_id: str
    parameters: Mapping[str, Any]
    state: str = RUNNING
    """running, succeeded, pruned (ended because others did better), failed, or stopped with the run."""
    value: float | None = None
    steps: tuple[tuple[int, float], ...] = ()
    """Values of the objective by step, thinned alike in all trials (tuning/objective.py)."""
    reason: str | None = None
    started: float = 0.0
    ended: float | None = None
    handle: Mapping[str, Any] | None = None
    """Handle with which the service finds the trial, if the service started it."""
    measured: Measurement | None = None
    """What a size of --scaling has measured."""
    source: Source | None = None
    until: int | None = None
    """Number of values at which the scheduler pauses the trial, with those of the trials before."""
    paused: bool = False
    """Whether the trial was paused, so that another trial may continue from its checkpoint."""

    @property
    def before(self) -> int:
        """Return the number of values of the trials from which this one continues."""
        return 0 if self.source is None else self.source.values


@dataclass(frozen=True)
class TrialLedger:
    """Content of a trial ledger: the trials by number, and the importance of each parameter if known."""

    trials: list[Trial]
    importance: Mapping[str, float]


def read(folder: RunFolder) -> TrialLedger:
    """Read the ledger as it is now. Empty if there is none yet. Torn and invalid lines are skipped."""
    try:
        data = folder.trials.read_bytes()
    except OSError:
        return TrialLedger([], {})
    trials: dict[int, Trial] = {}
    importance: Mapping[str, float] = {}
    for line in data.split(b"\n"):
        try:
            said = json.loads(line)
            if "importance" in said:
                importance = {str(name): float(value) for name, value in said["importance"].items()}
            elif "parameters" in said:
                number = int(said["number"])
                run_id = trial_id(folder.id, number)
                source = said.get("source")
                trials[number] = Trial(
                    number,
                    run_id,
                    said["parameters"],
                    started=float(said["time"]),
                    handle=said.get("handle"),
                    source=None if source is None else Source(int(source["trial"]), int(source["values"])),
                    until=said.get("until"),
                )
            else:
                number = int(said["number"])
                trials[number] = _ended(trials[number], said)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return TrialLedger([trials[number] for number in sorted(trials)], importance)


def _ended(trial: Trial, said: Mapping[str, Any]) -> Trial:
    value, reason, measured = said.get("value"), said.get("reason"), said.get("measured")
    return dataclasses.replace(
        trial,
        state=str(said["state"]),
        value=None if value is None else to_number(value),
        steps=tuple((int(step), to_number(at)) for step, at in said.get("steps", ())),
        reason=None if reason is None else str(reason),
        ended=float(said["time"]),
        paused=bool(said.get("paused")),
        measured=None if measured is None else Measurement.from_json(measured),
    )


def search_of(tuning: Mapping[str, Any]) -> Search:
    """Return the search in a tuning run's job (`Job.tuning`)."""
    return Search.from_json(tuning["search"])


def best(trials: Iterable[Trial], search: Search) -> Trial | None:
    """Return the best trial that has succeeded, the earliest of equals. None if no trial has succeeded."""
    found: Trial | None = None
    for trial in trials:
        if trial.state != SUCCEEDED or trial.value is None:
            continue
        if found is None or found.value is None or search.better(trial.value, found.value):
            found = trial
    return found


def of_parents(root: Path, search: Search) -> Iterator[Trial]:
    """Yield the trials of the parents that are runs below `root`. A removed parent has none."""
    for parent in search.parents:
        if ":" not in parent:
            yield from read(RunFolder(root / parent)).trials


def overall_best(root: Path, trials: Iterable[Trial], search: Search) -> Trial | None:
    """Return the best of these trials and of the parents' trials, if the parents had the same cell and data.

    A trial of a parent that is no run below `root` has the number -1, and BACKEND:JOB as its run's id.
    """
    if search.transfer:
        return best(trials, search)
    known = None if search.warm is None else search.warm.best
    elsewhere = [] if known is None else [Trial(-1, known.job, known.parameters, SUCCEEDED, known.value)]
    return best([*trials, *of_parents(root, search), *elsewhere], search)
