"""Schedulers of a tuning run and its stop conditions, as people write them: `asha(max_t=100,grace_period=5)`.

The names and parameters are those of Ray Tune. A unit of time is a value of the objective that a trial logs.
https://docs.ray.io/en/latest/tune/api/schedulers.html

An error message continues a sentence that begins with the flag's name.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from .written_call import read_call

__all__ = ["VALUES", "Condition", "Kind", "Scheduler", "read_conditions", "read_scheduler"]

Kind = Literal["asha", "hyperband", "median"]
VALUES = "training_iteration"
"""The name in a stop condition for the number of values of the objective. Ray Tune uses the same name."""
_DEFAULTS: Mapping[Kind, Mapping[str, float]] = {
    "asha": {"max_t": 100, "grace_period": 1, "reduction_factor": 4},
    "hyperband": {"max_t": 81, "reduction_factor": 3},
    "median": {"max_t": 0, "grace_period": 1, "min_samples_required": 3},
}
"""Scheduler → its parameters with Ray Tune's own defaults. A `max_t` of 0 sets no limit."""
_OTHERS = {
    "bohb": "write hyperband, with the strategy bayesian. That is the same combination",
    "pbt": "a trial is a run of its own, and does not continue from another trial's checkpoint. Write asha",
}
"""Scheduler of Ray Tune that does not exist here → what to write."""
_LEAST = {"reduction_factor": 2}
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Scheduler:
    """Rule that ends weak trials early. `own`: all its parameters."""

    kind: Kind
    own: Mapping[str, int] = field(default_factory=dict)

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


def read_scheduler(text: str) -> Scheduler:
    """Parse a scheduler. Raises ValueError, whose message contains a valid form."""
    call = read_call(text, {kind: tuple(own) for kind, own in _DEFAULTS.items()})
    if call is None:
        for name, why in _OTHERS.items():
            if re.match(rf"\s*{name}\b", text):
                raise ValueError(f"cannot be {name}: {why}")
        raise ValueError(f"needs {', '.join(_DEFAULTS)}, as in asha(max_t=100), got {text!r:.80}")
    kind = cast(Kind, call[0])
    own = {name: int(value) for name, value in _DEFAULTS[kind].items()}
    for name, value in call[1].items():
        least = _LEAST.get(name, 1)
        if not re.fullmatch(r"\d{1,9}", value) or int(value) < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r:.80}")
        own[name] = int(value)
    if own["max_t"] and own["max_t"] < own.get("grace_period", 1):
        raise ValueError(
            f"{kind} has a max_t of {own['max_t']} and a grace_period of {own['grace_period']}. Write a "
            "max_t that is not smaller"
        )
    return Scheduler(kind, own)


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
