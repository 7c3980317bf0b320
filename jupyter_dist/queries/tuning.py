"""Trials of a tuning run as JSON for the views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..folder import RunFolder
from ..record import trials
from ..search.dimensions import Choice, Dimension
from .answers.runs import Parameter, TrialInfo, TrialOf, Tuning
from .scaling import scaling_of

__all__ = ["trial_of", "tuning_of"]

_MOST = 5000
"""Limit of trials in an answer, because nobody reads a longer table. The best trial is always included."""


def tuning_of(folder: RunFolder, about: Mapping[str, Any]) -> Tuning:
    """Return the trials of a tuning run. `about`: the job's `tuning`."""
    search = trials.search_of(about)
    told = trials.read(folder)
    best = trials.best(told.trials, search)
    shown = told.trials[-_MOST:]
    if best is not None and best.number < shown[0].number:
        shown = [best, *shown]
    more: dict[str, Any] = {"scaling": scaling_of(told.trials, about["trial"])} if search.sizes else {}
    return {
        "metric": search.metric,
        "goal": search.goal,
        "strategy": search.strategy,
        "max_jobs": search.max_jobs,
        "parallel": search.parallel,
        "parameters": [_parameter(name, one) for name, one in search.space.items()],
        "trials": [_trial(trial) for trial in shown],
        "best": None if best is None else best.number,
        "importance": dict(told.importance),
        **more,  # type: ignore[typeddict-item]
    }


def trial_of(about: Mapping[str, Any]) -> TrialOf:
    """Return to which tuning run a trial belongs. `about`: the job's `trial`."""
    return {"of": str(about["of"]), "number": int(about["number"]), "parameters": dict(about["parameters"])}


def _parameter(name: str, one: Dimension) -> Parameter:
    if isinstance(one, Choice):
        return {
            "name": name,
            "kind": "choice",
            "low": None,
            "high": None,
            "log": False,
            "values": [*one.values],
        }
    kind = one.to_json()["kind"]
    return {"name": name, "kind": kind, "low": one.low, "high": one.high, "log": one.log, "values": []}


def _trial(trial: trials.Trial) -> TrialInfo:
    told: TrialInfo = {
        "number": trial.number,
        "id": trial.run_id,
        "state": trial.state,
        "value": trial.value,
        "parameters": dict(trial.parameters),
        "reason": trial.reason,
        "started": trial.started,
        "ended": trial.ended,
    }
    if trial.source is not None:
        told["source"] = {"trial": trial.source.trial, "values": trial.source.values}
    return told
