"""What chooses values and ends hopeless trials: the engines of tuning, and what each of them is asked.

An engine chooses; it writes nothing and starts no run. The tuning (tuning/tuning_loop.py) asks it, writes the
ledger, starts each trial as a run of its own, reads the objective, and tells the engine what became of it. So
logs, views, `run.trials` and what a tuning outlives are the same whichever engine chooses, and an engine is
one module with one class, named in the table below by the backend of the trials.

A service that chooses values and starts the trials itself is an engine as well: its `ask` returns what it
has started, with a `handle` in the proposal, and the trial's backend finds by that (`Job.trial["handle"]`)
what it would submit otherwise.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from ...job import Job
from ...record.trials import Trial
from ...search.dimensions import Value
from ...search.spec import Search

__all__ = ["Engine", "Proposal", "engine_for"]

_OPTUNA = "optuna_engine:OptunaEngine"
_OF_BACKENDS = {
    "azureml": "azureml_engine:AzureMlEngine",
    "ray": "ray_tune_engine:RayTuneEngine",
    "sagemaker": "sagemaker_engine:SageMakerEngine",
}
"""Module and class by the backend of the trials; Optuna for every other one."""


@dataclass(frozen=True)
class Proposal:
    """What a trial is to try."""

    parameters: Mapping[str, Value]
    handle: Mapping[str, Any] | None = None
    """Where the engine has started the trial itself: what its backend finds it by, as JSON without secrets.
    It is in the ledger before the trial's run is made."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the trial's backend is told in place of what the user has said."""


class Engine(Protocol):
    """Made as `Engine(search, job)` in the carrier, with the tuning run's job; may import what it likes. All
    calls come from one thread at a time and none may wait for longer than a turn (a second): what waits does
    so in a thread of its own. What a call raises as `may_pass` (supervise/backend_calls.py) is tried again.

    `number`s are ours, from 0, in the order of `ask`. `reported` is all that the trial has logged of the
    objective so far, as (step, value), thinned alike in all trials.
    """

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        """Take over what is known from the ledger, in the order of numbers and before the first `ask`: trials
        that have ended, and (state `running`) those that go on and are told of from here on. `of_parent`:
        trials of --warm-start, whose numbers mean nothing here."""
        ...

    def ask(self, number: int) -> Proposal | None:
        """What the next trial is to try. None: not yet, ask again next turn, with the same number."""
        ...

    def is_hopeless(self, number: int, reported: Sequence[tuple[int, float]]) -> bool:
        """Whether the trial is to be ended early; asked at each turn while it runs where the search prunes.
        Of a trial with a handle, which a service may end by itself, once more when its run has ended as
        stopped: True then says that it was pruned."""
        ...

    def tell(
        self, number: int, state: str, value: float | None, reported: Sequence[tuple[int, float]]
    ) -> None:
        """How a trial has ended: a state of record/trials.py; `value` only of one that has succeeded."""
        ...

    def exhausted(self) -> str | None:
        """Why no more trials will come although --max-jobs is not reached. An empty text where that is as it
        should be. None: more may come."""
        ...

    def stop(self) -> None:
        """No more trials are wanted: the tuning is being stopped. Repeatable. The trials that run are stopped
        as runs by the tuning; what a service would still start has to be called off here."""
        ...

    def close(self) -> None:
        """The tuning has ended, however. Never raises."""
        ...


def engine_for(search: Search, job: Job) -> Engine:
    """The engine of a tuning run. Raises what its library's import raises."""
    module, _, name = _OF_BACKENDS.get(job.where, _OPTUNA).partition(":")
    made = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return cast(Engine, made(search, job))
