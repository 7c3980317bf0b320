"""One dimension of a search space: a real number, a whole number, or one of some values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeGuard

__all__ = ["Choice", "Dimension", "Real", "Scaling", "Value", "Whole", "from_json"]

Value = None | bool | int | float | str
"""Possible value of a trial's parameter.

It is JSON, so that every view, service and rank has the same value.
"""

Scaling = Literal["", "Auto", "ReverseLogarithmic"]
"""A scaling that only SageMaker knows. `Auto` lets it choose one, and other engines search linearly."""


@dataclass(frozen=True)
class Real:
    """A float from `low` to `high`, both included.

    `log`: each decade is equally likely. With `step`, only `low`, `low + step`, … are possible, and `high` is
    one of them.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    scaling: Scaling = ""

    @property
    def size(self) -> float:
        """Return the number of values. Infinite for a continuous range."""
        return math.inf if self.step is None else round((self.high - self.low) / self.step) + 1

    def point(self, number: int) -> float:
        """Return a value by its number, from 0. Only valid with `step`."""
        # Decimal, as in Optuna's FloatDistribution: in floats, 0.1 + 6 * 0.1 is above the upper end 0.7.
        return float(Decimal(str(self.low)) + number * Decimal(str(self.step)))

    def points(self) -> tuple[Value, ...] | None:
        """Return every value, in order. None for a continuous range."""
        return None if self.step is None else tuple(map(self.point, range(int(self.size))))

    def nearest(self, value: float) -> float:
        """Return the nearest value to a number in the range."""
        return float(value) if self.step is None else self.point(round((value - self.low) / self.step))

    def holds(self, value: object) -> bool:
        if not _is_number(value):
            return False
        if self.step is None:
            return self.low <= value <= self.high
        if not self.low - self.step < value < self.high + self.step:
            return False
        nearest = self.nearest(value)
        return abs(nearest - value) <= 1e-8 * self.step and self.low <= nearest <= self.high

    def to_json(self) -> dict[str, Any]:
        return {"kind": "real", **dataclasses.asdict(self)}

    def __str__(self) -> str:
        if self.step is not None:
            return f"quniform({self.low:g}, {self.high:g}, {self.step:g})"
        if self.scaling:
            return f"continuous({self.low:g}, {self.high:g}{_shown(self.scaling)})"
        return f"{'loguniform' if self.log else 'uniform'}({self.low:g}, {self.high:g})"


@dataclass(frozen=True)
class Whole:
    """An int from `low` to `high`, both included, in steps of `step`."""

    low: int
    high: int
    log: bool = False
    step: int = 1
    scaling: Scaling = ""

    @property
    def size(self) -> float:
        """Return the number of values."""
        return (self.high - self.low) // self.step + 1

    def point(self, number: int) -> int:
        """Return a value by its number, from 0."""
        return self.low + number * self.step

    def points(self) -> tuple[Value, ...] | None:
        """Return every value, in order."""
        return tuple(range(self.low, self.high + 1, self.step))

    def holds(self, value: object) -> bool:
        return _is_number(value) and self.low <= value <= self.high and (value - self.low) % self.step == 0

    def to_json(self) -> dict[str, Any]:
        return {"kind": "whole", **dataclasses.asdict(self)}

    def __str__(self) -> str:
        if self.scaling:
            return f"integer({self.low}, {self.high}{_shown(self.scaling)})"
        more = ", log=True" if self.log else "" if self.step == 1 else f", step={self.step}"
        return f"int({self.low}, {self.high}{more})"


@dataclass(frozen=True)
class Choice:
    """One of these values, without an order between them."""

    values: tuple[Value, ...]

    @property
    def size(self) -> float:
        """Return the number of values."""
        return len(self.values)

    def point(self, number: int) -> Value:
        """Return a value by its number, from 0."""
        return self.values[number]

    def points(self) -> tuple[Value, ...] | None:
        """Return every value, in the given order."""
        return self.values

    def holds(self, value: object) -> bool:
        return any(type(value) is type(one) and value == one for one in self.values)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "choice", "values": list(self.values)}

    def __str__(self) -> str:
        return f"choice({', '.join(map(repr, self.values))})"


Dimension = Real | Whole | Choice


def from_json(data: Mapping[str, Any]) -> Dimension:
    """Create a dimension from the data of `to_json`."""
    fields = {name: value for name, value in data.items() if name != "kind"}
    if data["kind"] == "choice":
        return Choice(tuple(fields["values"]))
    return Real(**fields) if data["kind"] == "real" else Whole(**fields)


def _shown(scaling: Scaling) -> str:
    return f", scaling={scaling}" if scaling != "Auto" else ""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
