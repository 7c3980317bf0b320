"""Trials of a parent, as far as a new search can use them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from .. import folder as folders
from ..errors import InputError
from ..record import reader, trials
from ..record.trials import PRUNED, SUCCEEDED, Trial
from ..search.spec import Search

__all__ = ["check", "known_trials"]


def check(search: Search) -> Search:
    """Return the search with its parent's whole id. Raises InputError if the parent cannot be used."""
    if search.parent is None:
        return search
    found = folders.find(search.parent)
    tuning = reader.job(found).tuning
    if tuning is None:
        raise InputError(f"run {found.id} is not a tuning run. Name a run that was started with --tune")
    parent = trials.search_of(tuning)
    if (parent.goal, parent.metric) != (search.goal, search.metric):
        raise InputError(
            f"the objective of run {found.id} was {parent.goal}:{parent.metric}, but here it is "
            f"{search.goal}:{search.metric}. Its values cannot be used. Remove --warm-start"
        )
    if not search.transfer and dict(parent.space) != dict(search.space):
        names = parent.space.keys() | search.space.keys()
        name = min(name for name in names if parent.space.get(name) != search.space.get(name))
        raise InputError(
            f"{name!r} was {parent.space.get(name, 'not tuned')} in run {found.id}, and is "
            f"{search.space.get(name, 'not tuned')} now. Write --warm-start {found.id}:transfer "
            "to use the trials that fit"
        )
    return dataclasses.replace(search, parent=found.id)


def known_trials(search: Search) -> Iterator[Trial]:
    """Yield the parent's trials that have a value or were pruned.

    Only parameters that fit this search's space are included. If the parent was removed meanwhile, there are
    no trials, and the tuning continues without them.
    """
    if search.parent is None:
        return
    for trial in trials.read(folders.RunFolder(folders.runs_root() / search.parent)).trials:
        if trial.state not in (SUCCEEDED, PRUNED):
            continue
        fitting = {
            name: value
            for name, value in trial.parameters.items()
            if name in search.space and search.space[name].holds(value)
        }
        if fitting:
            yield dataclasses.replace(trial, parameters=fitting)
