"""Answers about metric curves and resource usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    "Band",
    "Curve",
    "Curves",
    "CurvesChange",
    "CurvesUnchanged",
    "RankCurve",
    "RankUsage",
    "SpecialValue",
    "Usage",
    "UsageChange",
    "UsageSeries",
]


class UsageSeries(TypedDict):
    """One of `cpu` (percent of a core), `memory` (bytes), `gpu` (percent), `gpu_memory` (bytes), `net_in` and
    `net_out` (bytes a second, of the rank's host)."""

    name: str
    values: list[float | None]
    """At the times of its rank; null where there was none."""


class RankUsage(TypedDict):
    """What one rank took of its host, thinned."""

    rank: int
    times: list[float]
    series: list[UsageSeries]
    last_sign: float | None
    """When it printed or logged last."""


class Usage(TypedDict):
    """What the ranks took of their hosts. Times are by the clock of `host_time`."""

    attempt: int
    host_time: float
    ranks: list[RankUsage]


class UsageChange(TypedDict):
    """There is more to tell of what ranks take of their hosts."""

    kind: Literal["usage"]
    id: str


class SpecialValue(TypedDict):
    """A value of a metric that is no finite number."""

    step: float
    value: str
    """NaN, Infinity or -Infinity."""


class RankCurve(TypedDict):
    """A metric of one rank, thinned."""

    rank: int
    steps: list[float]
    values: list[float | None]
    """null where the value was not a finite number."""
    times: list[float | None]
    """null where no time is known."""
    count: NotRequired[int]
    """How many values were logged."""
    special: NotRequired[list[SpecialValue]]
    """The first values that were no finite numbers."""


class Band(TypedDict):
    """What the ranks' values lie between, by step."""

    steps: list[float]
    mean: list[float | None]
    min: list[float | None]
    max: list[float | None]


class Curve(TypedDict):
    """One metric."""

    name: str
    ranks: list[RankCurve]
    band: Band | None
    """Where ranks are too many to be told apart."""


class Curves(TypedDict):
    """Metrics to draw."""

    version: NotRequired[str]
    """Names this answer, for the next question."""
    attempt: NotRequired[int]
    names: list[str]
    curves: list[Curve]
    problem: NotRequired[str | None]
    """Why --metric finds no more."""


class CurvesUnchanged(TypedDict):
    """The answer of that version still holds."""

    version: str
    unchanged: Literal[True]


class CurvesChange(TypedDict):
    """There are new metrics."""

    kind: Literal["curves"]
    id: str
