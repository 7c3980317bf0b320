"""Engine of every backend without an engine of its own: Optuna.

The study is only in memory. The trial ledger has all facts of the trials, and a new study learns them from
it. The `number`s here are those of the tuning loop, even if a parent's trials come first in the study.

https://optuna.readthedocs.io/en/stable/tutorial/20_recipes/009_ask_and_tell.html
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from ...job import Job
from ...record.trials import PRUNED, RUNNING, SUCCEEDED, Trial
from ...search.spec import Search
from ...worker import foreign_names
from ..objective import counted
from . import Proposal
from .optuna_space import distributions, from_optuna, to_optuna

__all__ = ["OptunaEngine", "startup_trials"]


def startup_trials(search: Search) -> int:
    """Return how many trials are random: a third of the budget, at least 3 and at most 10.

    The engine needs these trials before it can learn.
    """
    return max(3, min(10, search.max_jobs // 3))


class OptunaEngine:
    """Engine with an Optuna study. Creating one imports Optuna, which takes a second."""

    def __init__(self, search: Search, job: Job) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        self._optuna, self._search = optuna, search
        self._space = distributions(search)
        self._study = optuna.create_study(
            study_name=job.id,  # Hyperband's brackets depend on it, so a trial stays in its bracket
            direction="maximize" if search.goal == "max" else "minimize",
            sampler=self._sampler(),
            pruner=self._pruner(),
        )
        self._asked: dict[int, Any] = {}
        self._told: dict[int, int] = {}
        """Number of reported values of each trial's series."""
        self._ended = 0
        self._judged: dict[int, int] = {}
        """Number of ended trials when each trial was last judged."""

    def _sampler(self) -> Any:
        samplers = self._optuna.samplers
        if self._search.strategy in ("random", "grid"):  # the points of a grid are fixed
            return samplers.RandomSampler(seed=self._search.seed)
        at_first = startup_trials(self._search)
        return samplers.TPESampler(n_startup_trials=at_first, constant_liar=True, seed=self._search.seed)

    def _pruner(self) -> Any:
        pruners = self._optuna.pruners
        asked = self._search.schedule
        if asked is not None:
            own = asked.own
            if asked.kind == "median":
                return pruners.MedianPruner(own["min_samples_required"], own["grace_period"])
            if asked.kind == "hyperband":
                return pruners.HyperbandPruner(1, own["max_t"], own["reduction_factor"])
            return pruners.SuccessiveHalvingPruner(own["grace_period"], own["reduction_factor"])
        if self._search.strategy == "hyperband":
            return pruners.HyperbandPruner()
        if self._search.early_stopping:
            return pruners.MedianPruner(n_startup_trials=max(2, min(5, self._search.max_jobs // 4)))
        return pruners.NopPruner()

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        states = {SUCCEEDED: "COMPLETE", PRUNED: "PRUNED", RUNNING: "RUNNING"}
        judged = self._search.scheduler is not None and not of_parent and trial.state != RUNNING
        state = self._optuna.trial.TrialState["RUNNING" if judged else states.get(trial.state, "FAIL")]
        given = to_optuna(self._search, trial.parameters)
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=state,
                params=given,
                distributions={name: self._space[name] for name in given},
                value=trial.value if trial.state == SUCCEEDED and not judged else None,
                intermediate_values={} if judged else dict(self._points(trial.steps)),
            )
        )
        if (trial.state == RUNNING or judged) and not of_parent:
            foreign_names.require("tuning/engines/optuna_engine")
            newest = self._study.get_trials(deepcopy=False)[-1]
            self._asked[trial.number] = self._optuna.trial.Trial(self._study, newest._trial_id)
        if judged:  # again, because a scheduler compares later trials with what it has judged
            for _ in self._reports(trial.number, trial.steps):
                self._asked[trial.number].should_prune()
            self.tell(trial)

    def ask(self, number: int) -> Proposal | None:
        if self._search.strategy == "grid":
            self._study.enqueue_trial(to_optuna(self._search, self._search.grid_point(number)))
        trial = self._study.ask(self._space)
        self._asked[number] = trial
        return Proposal(from_optuna(self._search, trial.params))

    def pruned_at(self, number: int, reported: Sequence[tuple[int, float]]) -> int | None:
        """Judge each new value.

        The last value is judged again when there are more trials to compare it with.
        """
        trial = self._asked[number]
        again = self._judged.get(number) != self._ended
        self._judged[number] = self._ended
        for step in self._reports(number, reported):
            again = False
            if trial.should_prune():
                return step
        return reported[-1][0] if again and reported and trial.should_prune() else None

    def _points(self, reported: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
        """Return (time, value). The time of a scheduler is the number of values, and otherwise the step."""
        return reported if self._search.scheduler is None else counted(reported)

    def _reports(self, number: int, reported: Sequence[tuple[int, float]]) -> Iterator[int]:
        """Report the new values to Optuna, one at a time. Yields the step of each."""
        before = self._told.get(number, 0)
        self._told[number] = len(reported)
        new = zip(reported[before:], self._points(reported)[before:], strict=True)
        for (step, _), (when, value) in new:
            if when >= 0:  # Optuna has no negative steps
                self._asked[number].report(value, when)
                yield step

    def tell(self, trial: Trial) -> None:
        for _ in self._reports(trial.number, trial.steps):
            pass
        asked = self._asked.pop(trial.number)
        self._ended += 1
        states = self._optuna.trial.TrialState
        if trial.state == SUCCEEDED:
            self._study.tell(asked, trial.value)
        else:
            self._study.tell(asked, state=states.PRUNED if trial.state == PRUNED else states.FAIL)

    def exhausted(self) -> str | None:
        return None

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass
