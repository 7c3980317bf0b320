"""Schedulers of a tuning run and its stop conditions, as people write them: `asha(max_t=100,grace_period=5)`.

The names and parameters are those of Ray Tune. A unit of time is a value of the objective that a trial logs.
https://docs.ray.io/en/latest/tune/api/schedulers.html

An error message continues a sentence that begins with the flag's name.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from .written_call import read_call

__all__ = ["VALUES", "Condition", "Kind", "Scheduler", "read_conditions", "read_scheduler"]

Kind = Literal["asha", "hyperband", "median", "pbt", "bohb"]
VALUES = "training_iteration"
"""The name in a stop condition for the number of values of the objective. Ray Tune uses the same name."""
_DEFAULTS: Mapping[Kind, Mapping[str, float]] = {
    "asha": {"max_t": 100, "grace_period": 1, "reduction_factor": 4},
    "hyperband": {"max_t": 81, "reduction_factor": 3},
    "median": {"max_t": 0, "grace_period": 1, "min_samples_required": 3},
    "pbt": {"max_t": 0, "perturbation_interval": 0},
    "bohb": {"max_t": 81, "reduction_factor": 3},
}
"""Scheduler → its parameters with Ray Tune's own defaults. A `max_t` of 0 sets no limit.

`pbt` needs both of its parameters, because Ray Tune's own defaults count seconds.
"""
_FRACTIONS: Mapping[Kind, Mapping[str, float]] = {
    "pbt": {"quantile_fraction": 0.25, "resample_probability": 0.25},
}
"""Scheduler → its parameters that are no whole numbers, with Ray Tune's own defaults."""
_MOST_OF_FRACTIONS = {"quantile_fraction": 0.5, "resample_probability": 1}
_LEAST = {"reduction_factor": 2}
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Scheduler:
    """Rule that ends weak trials early, or lets them continue from better ones.

    `own`: all its parameters that are whole numbers. `fractions`: its other parameters.
    """

    kind: Kind
    own: Mapping[str, int] = field(default_factory=dict)
    fractions: Mapping[str, float] = field(default_factory=dict)

    @property
    def pauses(self) -> bool:
        """Return whether a trial continues as another trial, from a checkpoint."""
        return self.kind in ("pbt", "bohb")

    def bracket_rungs(self) -> Iterator[tuple[tuple[int, int], ...]]:
        """Yield the brackets of synchronous HyperBand, without end.

        A bracket has rungs: how many trials are on it, and the number of values at which they are compared.
        The numbers are those of Ray Tune's HyperBandForBOHB, whose largest bracket comes first.
        """
        max_t, factor = self.own["max_t"], self.own["reduction_factor"]
        most = round(math.log(max_t, factor))
        for s in itertools.cycle(range(most, -1, -1)):
            size, values, found = math.ceil((most + 1) / (s + 1) * factor**s), max_t // factor**s, []
            if not values:
                continue
            for _ in range(s + 1):
                found.append((size, values))
                size, values = math.ceil(size / factor), min(values * factor, max_t)
            yield tuple(found)

    def count(self, population: int, limit: int) -> int:
        """Return the number of all trials, if none fails. A scheduler that pauses no trial adds none.

        `population`: the number of trials that continue from no other. `limit`: the number of values after
        which a trial has succeeded, with those of the trials before.
        """
        if self.kind == "pbt":
            return population * math.ceil(limit / self.own["perturbation_interval"])
        found, left = 0, population
        for bracket in self.bracket_rungs():
            if not left:
                break
            first = min(left, bracket[0][0])
            begins = [0, *(values for _, values in bracket[:-1])]
            rungs = zip(bracket, begins, strict=True)
            found += sum(min(first, size) for (size, _), at in rungs if at < limit)
            left -= first
        return found

    @property
    def brackets(self) -> int:
        """Number of brackets of asynchronous HyperBand, each of which begins to end trials later."""
        if self.kind != "hyperband":
            return 1
        return int(math.log(self.own["max_t"], self.own["reduction_factor"]) + 1e-9) + 1


@dataclass(frozen=True)
class Condition:
    """A trial has succeeded when a metric reaches a bound."""

    metric: str
    comparison: str
    bound: float

    def holds(self, value: float) -> bool:
        return _COMPARISONS[self.comparison](value, self.bound)

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self.bound:.15g}"


@functools.lru_cache(8)
def read_scheduler(text: str) -> Scheduler:
    """Parse a scheduler. Raises ValueError, whose message contains a valid form.

    A tuning run asks for its scheduler at every turn of its loop.
    """
    call = read_call(text, {kind: (*own, *_FRACTIONS.get(kind, ())) for kind, own in _DEFAULTS.items()})
    if call is None:
        raise ValueError(f"needs {', '.join(_DEFAULTS)}, as in asha(max_t=100), got {text!r:.80}")
    kind = cast(Kind, call[0])
    own = {name: int(value) for name, value in _DEFAULTS[kind].items()}
    fractions = dict(_FRACTIONS.get(kind, {}))
    for name, value in call[1].items():
        if name in fractions:
            fractions[name] = _fraction(name, value)
            continue
        least = _LEAST.get(name, 1)
        if not re.fullmatch(r"\d{1,9}", value) or int(value) < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r:.80}")
        own[name] = int(value)
    if own["max_t"] and own["max_t"] < own.get("grace_period", 1):
        raise ValueError(
            f"{kind} has a max_t of {own['max_t']} and a grace_period of {own['grace_period']}. Write a "
            "max_t that is not smaller"
        )
    if kind == "pbt" and not 0 < own["perturbation_interval"] < own["max_t"]:
        raise ValueError(
            "pbt needs a perturbation_interval and a larger max_t, in values of the objective. Write for "
            "example pbt(perturbation_interval=5,max_t=20)"
        )
    if kind == "bohb" and own["max_t"] < own["reduction_factor"]:
        raise ValueError(
            f"bohb has a max_t of {own['max_t']} and a reduction_factor of {own['reduction_factor']}. Write "
            "a max_t that is not smaller"
        )
    return Scheduler(kind, own, fractions)


def _fraction(name: str, text: str) -> float:
    most = _MOST_OF_FRACTIONS[name]
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise ValueError(f"{name} must be a number from 0 to {most:g}, got {text!r:.80}")
    return value


def read_conditions(text: str) -> tuple[Condition, ...]:
    """Parse `val_accuracy>=0.98,training_iteration>=100`. Raises ValueError."""
    found = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*([^\W\d][^<>=,]*?)\s*(>=|<=)\s*(\S+)\s*", piece)
        try:
            bound = float(match[3]) if match else float("nan")
        except ValueError:
            bound = float("nan")
        if match is None or not math.isfinite(bound):
            raise ValueError(f"needs METRIC>=NUMBER or METRIC<=NUMBER, as in loss<=0.1, got {piece!r:.80}")
        if match[1] == VALUES and match[2] == "<=":
            raise ValueError(f"{VALUES} only grows. Write {VALUES}>={match[3]:.80}")
        found.append(Condition(match[1], match[2], bound))
    return tuple(found)
