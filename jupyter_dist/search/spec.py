"""Search of a tuning run, as frozen data that its job stores as JSON."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .dimensions import Choice, Dimension, Value, from_json
from .schedulers import VALUES, Condition, Scheduler, read_conditions, read_scheduler

__all__ = [
    "RANKS",
    "STRATEGIES",
    "THROUGHPUT",
    "Goal",
    "KnownBest",
    "Search",
    "Strategy",
    "WarmStart",
    "read_objective",
    "read_parents",
    "read_sizes",
]

Goal = Literal["max", "min"]
Strategy = Literal["random", "bayesian", "hyperband", "grid"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
RANKS, THROUGHPUT = "ranks", "throughput"
"""What --scaling varies, and what it measures."""
_MOST_SIZES = 32
_WORDS: dict[str, Goal] = {"max": "max", "maximize": "max", "min": "min", "minimize": "min"}


_PARENT = re.compile(r"[^\s:,]+|sagemaker:[A-Za-z0-9][A-Za-z0-9-]{0,31}")
"""A run, or a tuning job of the one platform whose own tuning can start with another."""
_KINDS = (":identical", ":transfer")


@dataclass(frozen=True)
class KnownBest:
    """The best trial of a parent that jupyter-dist did not start."""

    job: str
    """BACKEND:JOB, which `attach` accepts."""
    value: float
    parameters: Mapping[str, str]


@dataclass(frozen=True)
class WarmStart:
    """What a platform has answered about the parents of a search."""

    jobs: tuple[str, ...]
    """The parents' names on the platform."""
    fixed: Mapping[str, str]
    """Fixed parameters that only the parents have, and that the platform requires again."""
    best: KnownBest | None = None
    """The best trial of the parents that jupyter-dist did not start."""


@dataclass(frozen=True)
class Search:
    """Search: which values to try, and how to compare the trials."""

    space: Mapping[str, Dimension]
    goal: Goal
    metric: str
    """Metric that ranks log. A trial's value is the last one of the lowest rank that logs the metric."""
    max_jobs: int
    parallel: int
    strategy: Strategy
    early_stopping: bool = False
    """Whether a trial is ended if it does worse than others did at the same step."""
    policy: str | None = None
    """Rule for ending trials, as the user wrote it (early_stopping.py). None: the backend's own rule."""
    scheduler: str | None = None
    """Scheduler, as the user wrote it (schedulers.py). None: the rule of `strategy` and `early_stopping`."""
    population: int | None = None
    """Number of trials that continue from no other trial, if the scheduler pauses trials."""
    stop_when: str | None = None
    """Conditions that end a trial as succeeded, as the user wrote them (schedulers.py)."""
    parents: tuple[str, ...] = ()
    """Tuning runs whose trials this search starts with: their ids, or BACKEND:JOB of other people's."""
    transfer: bool = False
    """Whether a parent had another space or another cell. Then only its trials in this space count."""
    warm: WarmStart | None = None
    """The parents, if the platform itself starts with them."""

    seed: int | None = None
    """Seed of the choices. They repeat only if trials end in the same order with the same values."""
    sizes: tuple[int, ...] = ()
    """Numbers of ranks to measure, for --scaling. Then each trial is the same cell with another number."""
    steps: int | None = None
    """The steps after which each size ends. None: at the end of the cell."""

    @property
    def prunes(self) -> bool:
        return self.early_stopping or self.strategy == "hyperband" or self.scheduler is not None

    @property
    def schedule(self) -> Scheduler | None:
        return None if self.scheduler is None else read_scheduler(self.scheduler)

    @property
    def pauses(self) -> bool:
        """Return whether a trial continues as another trial, from a checkpoint."""
        return self.schedule is not None and self.schedule.pauses

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return () if self.stop_when is None else read_conditions(self.stop_when)

    @property
    def most_values(self) -> int | None:
        """Return after how many values of the objective a trial has succeeded. None: there is no limit."""
        limits = [max(1, math.ceil(one.bound)) for one in self.conditions if one.metric == VALUES]
        schedule = self.schedule
        if schedule is not None and schedule.own["max_t"]:
            limits.append(schedule.own["max_t"])
        return min(limits, default=None)

    def better(self, one: float, other: float) -> bool:
        return one > other if self.goal == "max" else one < other

    def grid_size(self) -> float:
        """Return the number of points in the grid. Infinite if a dimension is continuous."""
        return math.prod(one.size for one in self.space.values())

    def grid_point(self, number: int) -> dict[str, Value]:
        """Return a point of the grid, numbered from 0. Only valid if `grid_size` is finite."""
        found: dict[str, Value] = {}
        for name in reversed(list(self.space)):  # the last parameter varies first
            number, place = divmod(number, int(self.space[name].size))
            found[name] = self.space[name].point(place)
        return {name: found[name] for name in self.space}

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "space": {name: one.to_json() for name, one in self.space.items()},
            "warm": None if self.warm is None else dataclasses.asdict(self.warm),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Search:
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        space = {name: from_json(one) for name, one in data["space"].items()}
        if data.get("parent") is not None:  # a run of an earlier version, which had one parent at most
            known["parents"] = [data["parent"]]
        of_several = {name: tuple(known.get(name, ())) for name in ("parents", "sizes")}
        return cls(**{**known, **of_several, "space": space, "warm": _warm(known.get("warm"))})

    @classmethod
    def of_sizes(cls, sizes: tuple[int, ...], steps: int | None) -> Search:
        """Return the search that measures the cell with each number of ranks, one after the other."""
        return cls({RANKS: Choice(sizes)}, "max", THROUGHPUT, len(sizes), 1, "grid", sizes=sizes, steps=steps)


def read_objective(text: str) -> tuple[Goal, str]:
    """Return the goal and the metric of `max:val_accuracy`.

    Raises ValueError. Its message continues a sentence that begins with the flag's name.
    """
    word, colon, metric = text.partition(":")
    goal = _WORDS.get(word.strip().lower())
    if goal is None or not colon or not metric.strip():
        raise ValueError(f"needs max:METRIC or min:METRIC, as in max:val_accuracy, got {text!r}")
    return goal, metric.strip()


def _warm(data: Mapping[str, Any] | None) -> WarmStart | None:
    if data is None:
        return None
    best = None if data["best"] is None else KnownBest(**data["best"])
    return WarmStart(tuple(data["jobs"]), data["fixed"], best)


def read_parents(text: str) -> tuple[tuple[str, ...], bool]:
    """Parse `RUN`, `RUN,sagemaker:JOB` or `RUN:transfer` to the parents and whether it is a transfer.

    Raises ValueError.
    """
    kind = next((kind for kind in _KINDS if text.endswith(kind)), "")
    parents = tuple(map(str.strip, text.removesuffix(kind).split(",")))
    if not all(map(_PARENT.fullmatch, parents)):
        raise ValueError(
            "needs the id of a tuning run, or sagemaker:JOB, or several with commas, then optionally "
            f":identical or :transfer, got {text!r:.100}"
        )
    twice = next((name for number, name in enumerate(parents) if name in parents[:number]), None)
    if twice is not None:
        raise ValueError(f"names {twice} twice. Write it once")
    return parents, kind == ":transfer"


def read_sizes(text: object) -> tuple[int, ...]:
    """Return the numbers of ranks in `1,2,4`, or in a list of them, in ascending order. Raises ValueError."""
    given = text.split(",") if isinstance(text, str) else list(text) if isinstance(text, list | tuple) else []
    try:
        sizes = sorted(int(str(one).strip()) for one in given)
    except ValueError:
        sizes = []
    if len(sizes) < 2 or sizes[0] < 1 or len(set(sizes)) < len(sizes) or len(sizes) > _MOST_SIZES:
        raise ValueError(
            f"needs 2 to {_MOST_SIZES} different numbers of ranks such as 1,2,4, got {text!r:.80}"
        )
    return tuple(sizes)
