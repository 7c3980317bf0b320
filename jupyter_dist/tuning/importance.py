"""How much each parameter matters, told from the trials, whichever engine has chosen them."""

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
    """How much of the differences between trials each parameter explains, together 1. Empty while that cannot
    be told: few trials, all alike, or no Optuna.

    https://optuna.readthedocs.io/en/stable/reference/generated/optuna.importance.PedAnovaImportanceEvaluator.html
    """
    done = [one for one in trials if one.state == SUCCEEDED and one.value is not None]
    if len(done) < _ENOUGH or len({one.value for one in done}) < 2:
        return {}
    with contextlib.suppress(Exception):  # a convenience, and of a library's newer parts
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
