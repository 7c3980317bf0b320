"""Answers about metric curves and resource usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    "AttemptStart",
    "BadRank",
    "Band",
    "Curve",
    "Curves",
    "CurvesChange",
    "LastValues",
    "NotFinite",
    "RankCurve",
    "RankUsage",
    "SpecialValue",
    "StepProfile",
    "StepsOfRank",
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


class StepsOfRank(TypedDict):
    """The mean step of one rank, in seconds. A part is null if the rank has not recorded it."""

    rank: int
    place: Literal["slowest", "median", "fastest"] | None
    """Its place among many ranks, of which only these three are told; null if all ranks are told."""
    steps: int
    step_s: float
    data_s: float | None
    compute_s: float
    """The rest of the step."""
    collectives_s: float | None
    samples_per_s: float | None
    gc: int
    """The number of garbage collections."""
    gc_s: float
    """Their seconds in all."""


class StepProfile(TypedDict):
    """Where the time of the training steps goes. The slowest rank is the one that waits least."""

    attempt: int
    ranks: list[StepsOfRank]
    straggler: int | None
    """The rank that the others wait for. A note of the run says more."""
    critical: bool
    missing: list[str]
    """The signals that a rank lacks: `steps`, `data`, `collectives`."""


class SpecialValue(TypedDict):
    """A value of a metric that is no finite number."""

    step: float
    value: str
    """NaN, Infinity or -Infinity."""


class NotFinite(TypedDict):
    """Values of a rank that are no finite numbers."""

    count: int
    last: SpecialValue
    since: float | None
    """The step from which on all values are such; null if the last value is a finite number."""


class RankCurve(TypedDict):
    """A metric of one rank, thinned. Without points if they were not asked for."""

    rank: int
    keep: NotRequired[int]
    """How many points of the earlier answer remain. The lists begin after them."""
    steps: list[float]
    values: list[float | None]
    """null where the value was not a finite number."""
    times: list[float | None]
    """null where no time is known."""
    count: NotRequired[int]
    """How many values were logged."""
    special: NotRequired[list[SpecialValue]]
    """The first values that were no finite numbers."""
    not_finite: NotRequired[NotFinite]
    """Absent if all values are finite."""
    last: NotRequired[float | None]
    """The rank's value at the step of the curve's `last`."""


class LastValues(TypedDict):
    """Values of a metric at the last step that all ranks have reached. Lists show this mean as well."""

    step: float
    mean: float
    min: float
    max: float
    ranks: int
    """How many ranks have a value at this step."""
    of: int
    """How many ranks log the metric."""


class Band(TypedDict):
    """What the ranks' values lie between, by step."""

    keep: NotRequired[int]
    """How many steps of the earlier answer remain. The lists begin after them, except `ranks`."""
    steps: list[float]
    mean: list[float | None]
    min: list[float | None]
    max: list[float | None]
    times: list[float | None]
    """Mean of the ranks' times; null where no time is known."""
    whole: int
    """How many of the steps all ranks have reached. After these, the mean is of some ranks."""
    ranks: list[int]
    """For each step after `whole`: how many ranks have reached it."""


class AttemptStart(TypedDict):
    """Where the points of a later attempt begin."""

    attempt: int
    step: float


class Curve(TypedDict):
    """One metric."""

    name: str
    ranks: list[RankCurve]
    """The ranks whose points were asked for, and those with values that are not finite."""
    band: Band | None
    """null if only one rank logs the metric, unless the run has many ranks."""
    last: NotRequired[LastValues | None]
    """null where no value there is a finite number."""
    attempts: NotRequired[list[AttemptStart]]
    """The attempts whose points follow those of an earlier attempt."""


class BadRank(TypedDict):
    """A rank that logs values that are no finite numbers."""

    rank: int
    name: str
    """The first metric whose last value is such."""
    value: str
    since: float
    """The step from which on all values are such."""


class Curves(TypedDict):
    """Metrics to draw."""

    version: NotRequired[str]
    """Names this answer. The next question names it in `since`."""
    attempt: NotRequired[int]
    names: list[str]
    """All metrics of the run."""
    curves: list[Curve]
    """Those that were asked for. With `since`, only those that have changed."""
    bad: NotRequired[list[BadRank]]
    problem: NotRequired[str | None]
    """Why --metric finds no more."""


class CurvesChange(TypedDict):
    """There are new metrics."""

    kind: Literal["curves"]
    id: str
