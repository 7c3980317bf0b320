"""The shapes of what is told of the use that ranks make of their hosts."""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = ["RankUsage", "Usage", "UsageChange", "UsageSeries"]


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
