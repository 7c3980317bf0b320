"""Parents of a search: their check before the start, and their trials as far as the search can use them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from .. import folder as folders
from ..backends import Backend, extensions_of
from ..errors import InputError
from ..folder import RunFolder
from ..record import reader, trials
from ..record.trials import PRUNED, SUCCEEDED, Trial
from ..search.spec import Search

__all__ = ["check", "known_trials"]


def check(search: Search, backend: Backend, options: Mapping[str, Any], world_size: int) -> Search:
    """Return the search with its parents' whole ids, after a check that it can begin with them.

    `backend`, `options`, `world_size`: those of each trial. Blocks if the platform has the parents. Raises
    InputError for a parent that cannot be used, and other DistErrors.
    """
    if not search.parents:
        return search
    platform = extensions_of(backend).search
    warm_start = None if platform is None else platform.warm_start
    parents: list[str] = []
    for name in search.parents:
        of_platform, colon, _ = name.partition(":")
        if not colon:
            place = folders.find(name)
            _check_run(search, place, backend, own_rules=warm_start is None)
            name = place.id
        elif warm_start is None or of_platform != backend.name:
            raise InputError(
                f"--warm-start {name} needs a tuning on {of_platform}, but the backend here is "
                f"{backend.name!r}. Write --backend {of_platform}, or the id of a tuning run"
            )
        if name in parents:
            raise InputError(f"--warm-start names run {name} twice. Write it once")
        parents.append(name)
    search = dataclasses.replace(search, parents=tuple(parents))
    return search if warm_start is None else warm_start(search, options, world_size)


def _check_run(search: Search, place: RunFolder, backend: Backend, *, own_rules: bool) -> None:
    """Raise InputError if the search cannot begin with that run. `own_rules`: no platform has rules."""
    about = reader.job(place)
    if about.tuning is None:
        raise InputError(f"run {place.id} is not a tuning run. Name a run that was started with --tune")
    parent = trials.search_of(about.tuning)
    if (parent.goal, parent.metric) != (search.goal, search.metric):
        raise InputError(
            f"the objective of run {place.id} was {parent.goal}:{parent.metric}, but here it is "
            f"{search.goal}:{search.metric}. Its values cannot be used. Remove --warm-start"
        )
    if not own_rules:
        if about.where != backend.name:
            raise InputError(
                f"run {place.id} was tuned on {about.where}, so {backend.name} does not have its trials. "
                "Remove --warm-start"
            )
    elif not search.transfer and dict(parent.space) != dict(search.space):
        names = parent.space.keys() | search.space.keys()
        name = min(name for name in names if parent.space.get(name) != search.space.get(name))
        raise InputError(
            f"{name!r} was {parent.space.get(name, 'not tuned')} in run {place.id}, and is "
            f"{search.space.get(name, 'not tuned')} now. Write --warm-start {place.id}:transfer "
            "to use the trials that fit"
        )


def known_trials(search: Search) -> Iterator[Trial]:
    """Yield the trials of the parents that have a value or were pruned.

    Only parameters that fit this search's space are included. If a parent was removed meanwhile, it has no
    trials, and the tuning continues without them. Nor has a parent that is no run of this machine.
    """
    for trial in trials.of_parents(folders.runs_root(), search):
        if trial.state not in (SUCCEEDED, PRUNED):
            continue
        fitting = {
            name: value
            for name, value in trial.parameters.items()
            if name in search.space and search.space[name].holds(value)
        }
        if fitting:
            yield dataclasses.replace(trial, parameters=fitting)
