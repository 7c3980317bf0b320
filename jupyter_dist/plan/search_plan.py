"""Conversion of the flags of a tuning run to a checked search. None for a run without tuning."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec

from .. import backends
from ..backends import PlatformSearch
from ..errors import InputError, MissingEngine
from ..options import OF_TUNING, RunOptions
from ..search.early_stopping import ALONE
from ..search.notation import read_dimension
from ..search.schedulers import Scheduler, read_scheduler
from ..search.spec import Search, Strategy, read_objective, read_parents, read_sizes

__all__ = ["make_search"]

_TRIALS = 10
_MOST = 100_000
_STRATEGIES: Mapping[str, Strategy] = {"pbt": "random", "bohb": "bayesian"}
"""Scheduler that chooses values itself → the strategy that it stands for."""
_OPTUNA = (("Optuna", 'pip install "jupyter-dist[tune]"'),)
"""What the engine of all backends without one of their own needs."""


def make_search(
    run: RunOptions, platform: PlatformSearch | None, spelled: Callable[[str], str]
) -> Search | None:
    """Return the search. `platform`: the engine of the trials' backend, if it has one of its own.

    `spelled` maps a field's name to what the user wrote.

    The parents are checked later, where they are looked up (tuning/warm_start.py). Raises InputError.
    Raises MissingEngine if the search engine is not installed.
    """
    if not run.tune:
        given = [name for name in OF_TUNING if getattr(run, name) not in (None, False)]
        if given:
            raise InputError(
                f"{spelled(given[0])} works only with {spelled('tune')}. Add the values to try, "
                f"{_example(spelled)}"
            )
        return _scaling(run, spelled)
    if run.scaling is not None:
        raise InputError(
            f"{spelled('scaling')} cannot be combined with {spelled('tune')}. Remove one of them"
        )
    if run.objective is None:
        raise InputError(
            f"{spelled('tune')} needs {spelled('objective')}: max:METRIC or min:METRIC. The ranks "
            "must log this metric"
        )
    goal, metric = read_objective(run.objective)
    kind = "" if run.scheduler is None else read_scheduler(run.scheduler).kind
    strategy: Strategy = run.strategy or _STRATEGIES.get(kind, "bayesian")
    parents, transfer = ((), False) if run.warm_start is None else read_parents(run.warm_start)
    search = Search(
        space={name: read_dimension(text) for name, text in run.tune.items()},
        goal=goal,
        metric=metric,
        max_jobs=run.max_jobs or _TRIALS,
        parallel=run.parallel or 1,
        strategy=strategy,
        early_stopping=run.early_stopping is not None,
        policy=None if run.early_stopping == ALONE else run.early_stopping,
        scheduler=run.scheduler,
        stop_when=run.stop_when,
        parents=parents,
        transfer=transfer,
        seed=run.seed,
    )
    if search.policy is not None and not (platform and platform.stopping_rules):
        able = " or ".join(map(repr, _with_stopping_rules()))
        raise InputError(
            f"{spelled('early_stopping')} {search.policy:.80} works only with the backend {able}. Other "
            f"backends have one built-in rule. Write {_built_in_rule(spelled)}"
        )
    _check_scheduler(search, platform, spelled)
    for name, one in search.space.items():
        if getattr(one, "scaling", "") == "ReverseLogarithmic" and not (platform and platform.scalings):
            raise InputError(
                f"{name}={one}: only SageMaker has this scaling. Use loguniform for 1 - {name}, and subtract "
                "in the cell"
            )
    if search.schedule is not None and search.pauses:
        return _population(search, search.schedule, run, spelled)
    by_platform = platform is not None and platform.warm_start is not None
    if parents and (strategy == "grid" or (strategy == "random" and not by_platform)):
        raise InputError(
            f"{spelled('strategy')} {strategy} cannot use {spelled('warm_start')}, because it "
            "does not learn from earlier trials. Use bayesian or hyperband, or remove "
            f"{spelled('warm_start')}"
        )
    if strategy == "grid":
        search = _grid(search, run, spelled)
    _check_packages(_OPTUNA if platform is None else platform.packages(strategy), spelled)
    return search


def _scaling(run: RunOptions, spelled: Callable[[str], str]) -> Search | None:
    name = spelled("scaling")
    if run.scaling is None:
        if run.steps is not None:
            example = "scaling=[1, 2, 4]" if name == "scaling" else f"{name} 1,2,4"
            raise InputError(
                f"{spelled('steps')} works only with {name}. Add the numbers of ranks, as in {example}"
            )
        return None
    if run.np is not None:
        raise InputError(f"{name} cannot be combined with {spelled('np')}. Remove one of them")
    return Search.of_sizes(read_sizes(run.scaling), run.steps)


def _check_scheduler(search: Search, platform: PlatformSearch | None, spelled: Callable[[str], str]) -> None:
    for name in ("scheduler", "stop_when"):
        if getattr(search, name) is not None and platform is not None and not platform.schedulers:
            raise InputError(
                f"{spelled(name)} does not work with this backend, whose service ends trials by its own "
                f"rules. Remove {spelled(name)}"
            )
    if search.scheduler is not None and search.strategy == "hyperband":
        raise InputError(
            f"{spelled('strategy')} hyperband has a scheduler of its own. Write {spelled('strategy')} "
            f"bayesian, or remove {spelled('scheduler')}"
        )


def _population(
    search: Search, schedule: Scheduler, run: RunOptions, spelled: Callable[[str], str]
) -> Search:
    """Return the search with the number of all its trials. `max_jobs` was the size of the population."""
    name = f"{spelled('scheduler')} {schedule.kind}"
    if search.strategy != _STRATEGIES[schedule.kind]:
        raise InputError(
            f"{name} cannot be combined with {spelled('strategy')} {search.strategy}, because it chooses the "
            f"values itself. Remove {spelled('strategy')}"
        )
    if search.parents:
        raise InputError(
            f"{name} cannot use {spelled('warm_start')}, because it learns only from its own trials. Remove "
            f"{spelled('warm_start')}"
        )
    if run.max_restarts:
        raise InputError(
            f"{name} cannot be combined with {spelled('max_restarts')}, because a trial that restarts logs "
            f"some values again. Remove {spelled('max_restarts')}"
        )
    if search.max_jobs < 2:
        raise InputError(
            f"{name} needs a population of at least 2 trials. Remove {spelled('max_jobs')}, or increase it"
        )
    if schedule.kind == "bohb":
        _check_packages(_OPTUNA, spelled)
    everything = schedule.count(search.max_jobs, search.most_values or 0)
    return dataclasses.replace(search, population=search.max_jobs, max_jobs=everything)


def _check_packages(packages: Iterable[tuple[str, str]], spelled: Callable[[str], str]) -> None:
    for name, install in packages:
        if find_spec(name.lower()) is None:
            raise MissingEngine(f"{spelled('tune')} needs {name}: {install}")


def _with_stopping_rules() -> Iterator[str]:
    for name in backends.built_in():
        platform = backends.extensions_of(backends.declared(name)).search
        if platform is not None and platform.stopping_rules:
            yield name


def _grid(search: Search, run: RunOptions, spelled: Callable[[str], str]) -> Search:
    for name, one in search.space.items():
        if one.size == math.inf:
            raise InputError(
                f"A grid search needs a finite list of values, and {name}={one} is a continuous "
                f"range. List the values, as in {name}=choice(0.001,0.01) or {name}=quniform(0,1,0.25)"
            )
    size = search.grid_size()
    if run.max_jobs is None and size > _MOST:
        raise InputError(
            f"The grid has {size:,.0f} points, which is too many to try them all. Set the number "
            f"of trials with {spelled('max_jobs')}"
        )
    number = int(min(size, run.max_jobs or math.inf))
    return Search(**{**search.__dict__, "max_jobs": number})


def _built_in_rule(spelled: Callable[[str], str]) -> str:
    name = spelled("early_stopping")
    return f"{name}=True" if name == "early_stopping" else f"{name} without a value"


def _example(spelled: Callable[[str], str]) -> str:
    if spelled("tune") != "tune":
        return "as in --tune 'lr=loguniform(1e-5,1e-1)'"
    return "as in tune={'lr': 'loguniform(1e-5,1e-1)'}"
