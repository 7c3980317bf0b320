"""Engines of tuning, which choose values and prune trials, and the interface between tuning loop and engine.

An engine only chooses. It writes nothing and starts no run. The tuning loop (tuning/tuning_loop.py) asks the
engine, writes the trial ledger and starts each trial as a run. It reads the objective, and passes the trial's
result to the engine. So logs, views and `run.trials` are the same for every engine. An engine is one module
with one class. The table below maps the backend of the trials to it.

A service that chooses values and starts the trials itself is an engine as well. Its `ask` returns what the
service has started, with a `handle` in the proposal. With this handle (`Job.trial["handle"]`) the trial's
backend finds the job that it would submit otherwise.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from ...job import Job
from ...record.trials import Source, Trial
from ...search.dimensions import Value
from ...search.spec import Search

__all__ = ["Engine", "PausingEngine", "Proposal", "engine_for"]

_SIZES = "sizes_engine:SizesEngine"
"""Of --scaling, on each backend."""
_OF_SCHEDULERS = {"bohb": "bohb_engine:BohbEngine", "pbt": "population_engine:PopulationEngine"}
"""Module and class by the scheduler, on each backend. Other schedulers are parts of the engines below."""
_AROUND = {"ray": "on_trials_ray:OnTrialsRay"}
"""Module and class of an engine that uses one of these, by the backend of the trials."""
_OPTUNA = "optuna_engine:OptunaEngine"
_OF_BACKENDS = {
    "azureml": "azureml_engine:AzureMlEngine",
    "ray": "ray_tune_engine:RayTuneEngine",
    "sagemaker": "sagemaker_engine:SageMakerEngine",
}
"""Module and class by the backend of the trials. All other backends use Optuna."""


@dataclass(frozen=True)
class Proposal:
    """Values that a trial is to try."""

    parameters: Mapping[str, Value]
    handle: Mapping[str, Any] | None = None
    """Handle of a trial that the engine has started itself, as JSON without secrets.

    Its backend finds it with this.

    The handle is written to the ledger before the trial's run is created.
    """
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the trial's backend that replace the user's."""
    source: Source | None = None
    """What the trial continues from."""
    until: int | None = None
    """Number of values at which the trial is paused, with those of the trials from which it continues."""


class Engine(Protocol):
    """Interface of an engine. It is created as `Engine(search, job)` in the backend process.

    `job` is the tuning run's job. An engine may import any library. All calls come from one thread at a time,
    and none may block longer than a turn (a second). Blocking work needs a thread of its own. An exception
    that `may_pass` (supervise/backend_calls.py) causes a retry.

    The tuning loop assigns each `number`, from 0, in the order of `ask`. `reported` has the objective's
    values that the trial has logged so far, as (step, value). They are thinned alike in all trials.
    """

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        """Add a trial from the ledger. Called in the order of numbers, before the first `ask`.

        The trial has ended, or (state `running`) still runs and is reported from then on.
        `of_parent`: a trial of --warm-start, whose number has no meaning here.
        """
        ...

    def ask(self, number: int) -> Proposal | None:
        """Return what the next trial is to try. None: ask again next turn, with the same number."""
        ...

    def pruned_at(self, number: int, reported: Sequence[tuple[int, float]]) -> int | None:
        """Return the step whose value decides that the trial is pruned; None if it goes on.

        Called at each turn while it runs, if the search prunes. A service may end a trial with a handle by
        itself. For such a trial, the method is called once more when its run has ended as stopped. A step
        then means that the service pruned the trial.
        """
        ...

    def tell(self, trial: Trial) -> None:
        """Add a trial's result."""
        ...

    def exhausted(self) -> str | None:
        """Return why no more trials follow although --max-jobs is not reached.

        An empty text means a normal end. None means that more trials may follow.
        """
        ...

    def stop(self) -> None:
        """Request no more trials, because the tuning run is being stopped. Repeatable.

        The tuning loop stops the runs of the running trials. If a service would start more, this method
        cancels them.
        """
        ...

    def close(self) -> None:
        """Release everything after the tuning has ended, for whatever reason. Never raises."""
        ...


class PausingEngine(Engine, Protocol):
    """Interface of the engine of a scheduler that pauses trials."""

    def sources(self) -> Collection[int]:
        """Return the numbers of the trials whose checkpoints are still needed.

        A trial may still continue from them, or one that runs has begun from them and may have no copy yet.
        """
        ...


def engine_for(search: Search, job: Job) -> Engine:
    """Return the engine of a tuning run. Raises what its library's import raises."""
    kind = "" if search.schedule is None else search.schedule.kind
    named = _SIZES if search.sizes else _OF_SCHEDULERS.get(kind) or _OF_BACKENDS.get(job.where, _OPTUNA)
    engine = cast(Engine, _loaded(named)(search, job))
    around = _AROUND.get(job.where) if named in _OF_SCHEDULERS.values() else None
    return engine if around is None else cast(Engine, _loaded(around)(engine, search, job))


def _loaded(named: str) -> Any:
    module, _, name = named.partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
