"""The request for an Azure ML sweep job: a search in its format, and its values in ours. Pure.

https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters
https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update#sweepjob
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...errors import InputError
from ...search.dimensions import Choice, Dimension, Real, Value, Whole
from ...search.early_stopping import Policy, read_policy
from ...search.spec import Search
from .options import AzureMlOptions
from .request import command_job, iso_duration

__all__ = ["check_search", "parameters_of", "sweep_job", "sweep_name"]

_MOST_TRIALS = 1000
_STRATEGIES = {"random": "Random", "bayesian": "Bayesian", "grid": "Grid"}
_GOALS = {"max": "maximize", "min": "minimize"}
_POLICIES = {"bandit": "Bandit", "median": "MedianStopping", "truncation": "TruncationSelection"}
_OF_POLICIES = {
    "slack_factor": "slackFactor",
    "slack_amount": "slackAmount",
    "truncation_percentage": "truncationPercentage",
}
_OF_TRIAL = ("codeId", "command", "environmentId", "distribution")
"""Keys that a sweep's trial shares with a command job, beside `resources`."""
_EXPONENT = "log10_"
"""Prefix of a parameter's name if its exponent is searched."""


def sweep_name(run: str) -> str:
    """Return the name of a run's sweep job. The client finds the job by it."""
    return f"jupyter-dist-{run}"


def check_search(search: Search) -> None:
    """Raise InputError if a sweep job cannot do this search."""
    if search.strategy not in _STRATEGIES:
        raise InputError(
            f"a sweep job does not support --strategy {search.strategy}. Use random, and "
            "--early-stopping 'bandit(slack_factor=0.1)', which ends trials early"
        )
    if search.early_stopping and search.strategy == "bayesian":
        raise InputError(
            "a sweep job cannot end trials early with --strategy bayesian. Use random or grid, "
            "or remove --early-stopping"
        )
    if search.seed is not None and search.strategy != "random":
        raise InputError(
            f"a sweep job supports --seed only with --strategy random, not {search.strategy}. Remove --seed"
        )
    if search.parents:
        raise InputError("a sweep job cannot use the results of other runs. Remove --warm-start")
    if search.max_jobs > _MOST_TRIALS:
        raise InputError(f"a sweep job has at most {_MOST_TRIALS:,} trials, got --max-jobs {search.max_jobs}")
    for name, one in search.space.items():
        texts = [str(value) for value in one.values] if isinstance(one, Choice) else []
        if len(set(texts)) < len(texts):
            raise InputError(
                f"--tune {name}={one}: two of these values are the same text in a sweep job. Remove one"
            )
        if any("'" in text or "${{" in text for text in texts):
            raise InputError(
                f"--tune {name}={one}: a sweep job allows no quotes and no ${{{{ in a value. Remove them"
            )
        if _sent_name(name, one, search) != name and _EXPONENT + name in search.space:
            raise InputError(f"--tune {_EXPONENT}{name}=…: this is how {name}'s own exponent is called there")


def sweep_job(
    search: Search,
    asked: AzureMlOptions,
    name: str,
    world_size: int,
    workspace: str,
    code: str,
    *,
    version: str | None = None,
    longest_s: float | None = None,
) -> dict[str, Any]:
    """Return the body of a sweep job whose trials are command jobs. `command_job` documents the arguments.

    `longest_s`: of all trials together.
    """
    given = command_job(asked, name, world_size, workspace, code, version=version)["properties"]
    trial = {key: given.pop(key) for key in _OF_TRIAL}
    del given["environmentVariables"]
    space = {_sent_name(name, one, search): _distribution(one, search) for name, one in search.space.items()}
    trial["command"] += " --" + "".join(f" '{key}=${{{{search_space.{key}}}}}'" for key in space)
    limits: dict[str, Any] = {
        "jobLimitsType": "Sweep",
        "maxTotalTrials": search.max_jobs,
        "maxConcurrentTrials": min(search.parallel, search.max_jobs),
    }
    if longest_s is not None:
        limits["timeout"] = iso_duration(longest_s)
    sampling: dict[str, Any] = {"samplingAlgorithmType": _STRATEGIES[search.strategy]}
    if search.seed is not None:
        sampling["seed"] = search.seed
    told = {
        **given,
        "jobType": "Sweep",
        "searchSpace": space,
        "samplingAlgorithm": sampling,
        "objective": {"goal": _GOALS[search.goal], "primaryMetric": search.metric},
        "limits": limits,
        "trial": {**trial, "resources": given["resources"]},
    }
    if search.early_stopping:
        told["earlyTermination"] = _termination(
            Policy("median") if search.policy is None else read_policy(search.policy)
        )
    return {"properties": told}


def parameters_of(search: Search, given: Mapping[str, Any]) -> dict[str, Value]:
    """Convert the service's choice for a trial to values of the search."""
    told = {name.lstrip("-"): value for name, value in given.items()}
    return {
        name: _value(one, told[_sent_name(name, one, search)], search) for name, one in search.space.items()
    }


def _termination(policy: Policy) -> dict[str, Any]:
    return {
        "policyType": _POLICIES[policy.kind],
        "evaluationInterval": policy.evaluation_interval,
        "delayEvaluation": policy.delay_evaluation,
        **{_OF_POLICIES[name]: value for name, value in policy.own.items()},
    }


def _by_exponent(one: Dimension, search: Search) -> bool:
    """Return whether the search uses the exponent: the service's bayesian sampling has no logarithms."""
    return search.strategy == "bayesian" and isinstance(one, Real | Whole) and one.log


def _sent_name(name: str, one: Dimension, search: Search) -> str:
    return _EXPONENT + name if _by_exponent(one, search) else name


def _distribution(one: Dimension, search: Search) -> list[Any]:
    """Return a parameter's distribution.

    https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.sweep
    """
    if isinstance(one, Choice) or search.strategy == "grid":
        return ["choice", [[_sent(value) for value in one.points() or ()]]]
    if _by_exponent(one, search):
        return ["uniform", [math.log10(one.low), math.log10(one.high)]]
    if one.log:
        ends = [math.log(one.low), math.log(one.high)]
        return ["loguniform", ends] if isinstance(one, Real) else ["qloguniform", [*ends, one.step]]
    if one.step is None:
        return ["uniform", [one.low, one.high]]
    if not math.isclose(one.low / one.step, round(one.low / one.step), abs_tol=1e-9):
        return ["choice", [list(one.points() or ())]]  # the service counts its steps from 0
    return ["quniform", [one.low, one.high, one.step]]


def _sent(value: Value) -> int | float | str:
    """Return a value of a choice in the service's types: numbers and texts."""
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else str(value)


def _value(one: Dimension, told: Any, search: Search) -> Value:
    if isinstance(one, Choice):
        by_text = {str(value): value for value in one.values}
        if str(told) in by_text:
            return by_text[str(told)]
        return next(
            value
            for value in one.values
            if isinstance(value, int | float) and not isinstance(value, bool) and value == float(told)
        )
    number = 10 ** float(told) if _by_exponent(one, search) else float(told)
    number = min(max(number, one.low), one.high)
    if isinstance(one, Whole) and one.step == 1:
        return round(number)
    points = None if one.step is None else one.points()
    if points is None:
        return number
    return min(points, key=lambda point: abs(float(point or 0) - number))
