"""One dimension of a search space: a real number, a whole number, or one of some values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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

    def points(self) -> tuple[Value, ...] | None:
        """Return every value, in order. None for a continuous range."""
        if self.step is None:
            return None
        return tuple(self.low + i * self.step for i in range(round((self.high - self.low) / self.step) + 1))

    def holds(self, value: object) -> bool:
        return _is_number(value) and self.low <= value <= self.high  # type: ignore[operator]

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

    def points(self) -> tuple[Value, ...] | None:
        """Return every value, in order."""
        return tuple(range(self.low, self.high + 1, self.step))

    def holds(self, value: object) -> bool:
        return _is_number(value) and value == int(value) and self.low <= value <= self.high  # type: ignore

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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
