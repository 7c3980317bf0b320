"""A search: what a tuning run was asked for, as frozen data that stands as JSON in its job."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .dimensions import Dimension, Value, from_json

__all__ = ["STRATEGIES", "Goal", "Search", "Strategy", "read_objective", "read_parent"]

Goal = Literal["max", "min"]
Strategy = Literal["random", "bayesian", "hyperband", "grid"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
_WORDS: dict[str, Goal] = {"max": "max", "maximize": "max", "min": "min", "minimize": "min"}


@dataclass(frozen=True)
class Search:
    """What to try and how to judge it."""

    space: Mapping[str, Dimension]
    goal: Goal
    metric: str
    """The metric that ranks log: a trial's value is the last one of its lowest rank that logs it."""
    max_jobs: int
    parallel: int
    strategy: Strategy
    early_stopping: bool = False
    """Trials that do worse than the others did at the same step are ended."""
    policy: str | None = None
    """By which rule that is, as it was written (early_stopping.py), where the backend's own is not wanted."""
    parent: str | None = None
    """The id of a tuning run whose trials this one begins with."""
    transfer: bool = False
    """The parent had another space or another cell: only what of its trials lies in this space counts."""

    seed: int | None = None
    """From it follows what is chosen, as far as trials end in the same order with the same values."""

    @property
    def prunes(self) -> bool:
        return self.early_stopping or self.strategy == "hyperband"

    def better(self, one: float, other: float) -> bool:
        return one > other if self.goal == "max" else one < other

    def grid_size(self) -> float:
        """How many points the grid has; infinite where a dimension has no end of them."""
        return math.prod(math.inf if (p := one.points()) is None else len(p) for one in self.space.values())

    def grid_point(self, number: int) -> dict[str, Value]:
        """A point of the grid, from 0. Only where `grid_size` is finite."""
        points = itertools.product(*(one.points() or () for one in self.space.values()))
        return dict(zip(self.space, next(itertools.islice(points, number, None)), strict=True))

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "space": {name: one.to_json() for name, one in self.space.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Search:
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{**known, "space": {name: from_json(one) for name, one in data["space"].items()}})


def read_objective(text: str) -> tuple[Goal, str]:
    """The goal and the metric of `max:val_accuracy`.

    Raises ValueError, which goes on from the flag's name."""
    word, colon, metric = text.partition(":")
    goal = _WORDS.get(word.strip().lower())
    if goal is None or not colon or not metric.strip():
        raise ValueError(f"needs max:METRIC or min:METRIC, as in max:val_accuracy, got {text!r}")
    return goal, metric.strip()


def read_parent(text: str) -> tuple[str, bool]:
    """The run and whether it is `transfer` of `RUN`, `RUN:identical` or `RUN:transfer`. Raises ValueError."""
    run, _, kind = text.partition(":")
    if not run.strip() or kind not in ("", "identical", "transfer"):
        raise ValueError(f"needs the id of a tuning run, RUN:identical or RUN:transfer, got {text!r}")
    return run.strip(), kind == "transfer"
