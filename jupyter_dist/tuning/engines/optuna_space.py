"""Conversion of a search's space and values to Optuna's.

Optuna gets choices as indices. Otherwise it would lose their types, and False would equal 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...search.dimensions import Choice, Real, Value
from ...search.spec import Search

__all__ = ["distributions", "from_optuna", "to_optuna"]


def distributions(search: Search) -> dict[str, Any]:
    """Return Optuna's distribution of each parameter. Imports Optuna."""
    from optuna import distributions as made

    space: dict[str, Any] = {}
    for name, one in search.space.items():
        if isinstance(one, Choice):
            space[name] = made.CategoricalDistribution(range(len(one.values)))
        elif isinstance(one, Real):
            space[name] = made.FloatDistribution(one.low, one.high, log=one.log, step=one.step)
        else:
            space[name] = made.IntDistribution(one.low, one.high, log=one.log, step=one.step)
    return space


def to_optuna(search: Search, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the values of some of the parameters."""
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        one = search.space[name]
        if isinstance(one, Choice):
            found[name] = next(
                at for at, known in enumerate(one.values) if type(known) is type(value) and known == value
            )
        else:
            # Optuna refuses a trial whose value is not exactly in the range.
            found[name] = one.nearest(value) if isinstance(one, Real) else int(value)
    return found


def from_optuna(search: Search, parameters: Mapping[str, Any]) -> dict[str, Value]:
    """Convert values from `to_optuna` back."""
    found: dict[str, Value] = {}
    for name, value in parameters.items():
        one = search.space[name]
        if isinstance(one, Choice):
            found[name] = one.values[int(value)]
        else:
            found[name] = one.nearest(value) if isinstance(one, Real) else int(value)
    return found
