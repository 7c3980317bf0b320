"""Importance of each parameter, computed from the trials of any engine."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable

from ..record.trials import SUCCEEDED, Trial
from ..search.spec import Search
from .engines import optuna_space

__all__ = ["importance"]

_ENOUGH = 4


def importance(search: Search, trials: Iterable[Trial]) -> dict[str, float]:
    """Return which share of the differences between trials each parameter explains. The shares add up to 1.

    Empty if it cannot be computed: too few trials, equal values, or no Optuna.

    https://optuna.readthedocs.io/en/stable/reference/generated/optuna.importance.PedAnovaImportanceEvaluator.html
    """
    done = [one for one in trials if one.state == SUCCEEDED and one.value is not None]
    if len(done) < _ENOUGH or len({one.value for one in done}) < 2:
        return {}
    with contextlib.suppress(Exception):  # optional, and it needs newer parts of a library
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        space = optuna_space.distributions(search)
        study = optuna.create_study(direction="maximize" if search.goal == "max" else "minimize")
        for trial in done:
            if trial.parameters.keys() != space.keys():
                continue
            study.add_trial(
                optuna.trial.create_trial(
                    params=optuna_space.to_optuna(search, trial.parameters),
                    distributions=space,
                    value=trial.value,
                )
            )
        found = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )
        return {name: float(value) for name, value in found.items() if math.isfinite(value)}
    return {}
