"""Speed-up, efficiency, limits, and a projection, from the measurements of some numbers of ranks. Pure.

Two laws are fitted to the throughput, each with two numbers that are not negative:

- Amdahl: the work is fixed. A unit of work takes `a + b / ranks` seconds, the serial part is `a / (a + b)`.
- Gustafson: the work grows with the ranks. The throughput is `p + q * ranks`, the serial part `p / (p + q)`.

The projection has a range: what each law says. Its throughput is that of the law that fits better. Two sizes
fit both laws exactly. Then the projection follows Amdahl's, which is never the greater one. There is no
projection if neither law fits, for example if more ranks are slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from .measurement import Measurement

__all__ = ["Law", "Row", "Scaling", "report"]

_EFFICIENT = 0.9
"""From this efficiency on, nothing limits the scaling. The row then names the largest part of a step."""
_PROJECTED = 2
"""Projected sizes: twice and four times the largest."""
_FITS = 0.2
"""The error of a law up to which there is a projection."""
_SAME = 1e-9


@dataclass(frozen=True)
class Law:
    """One law, fitted to the measurements."""

    name: str
    serial: float
    """The part of the work that more ranks do not speed up, from 0 to 1."""
    error: float | None
    """The root mean square of the relative errors. None: two sizes fit exactly."""
    throughput: Callable[[float], float]
    """Returns the throughput of a number of ranks."""


@dataclass(frozen=True)
class Row:
    """One number of ranks, measured or projected."""

    ranks: int
    throughput: float
    speedup: float
    """Against the smallest size."""
    efficiency: float
    """The speed-up by the one that more ranks would ideally have."""
    low: float
    high: float
    """The range of the efficiency: of eight of ten steps, or of the two laws for a projection."""
    limit: str = ""
    """data, compute, communication, straggler, or unknown. Empty for a projection."""
    why: str = ""
    """The part of the limit, as `62 % of the loss` or `rank 1, data`."""
    projected: bool = False


@dataclass(frozen=True)
class Scaling:
    """The whole report. Without a measurement, there are no rows."""

    unit: Literal["samples/s", "steps/s"]
    """samples/s, or steps/s if the size of the batches is unknown at any size."""
    rows: Sequence[Row] = ()
    laws: Sequence[Law] = ()
    """Amdahl and Gustafson, from two sizes on."""

    @property
    def best(self) -> Law | None:
        """The law that the projection follows. None if neither fits."""
        fitting = [law for law in self.laws if (law.error or 0.0) <= _FITS]
        return min(fitting, key=lambda law: law.error or 0.0, default=None)


def report(measured: Sequence[Measurement]) -> Scaling:
    """Return the report. `measured` has one entry for each number of ranks, in ascending order."""
    by_samples = bool(measured) and all(one.samples_per_s for one in measured)
    unit: Literal["samples/s", "steps/s"] = "samples/s" if by_samples else "steps/s"
    if not measured:
        return Scaling(unit)
    rates = [(one.samples_per_s or 0.0) if by_samples else one.steps_per_s for one in measured]
    first, rate = measured[0], rates[0]
    rows = []
    for one, own in zip(measured, rates, strict=True):
        efficiency = own / rate * first.ranks / one.ranks
        limit, why = _limit(first, first.ranks / rate, one, one.ranks / own, efficiency)
        low, high = (efficiency * one.step_s / max(edge, _SAME) for edge in (one.slow_s, one.fast_s))
        rows.append(Row(one.ranks, own, own / rate, efficiency, low, high, limit, why))
    if len(measured) < 2:
        return Scaling(unit, rows)
    sizes = [one.ranks for one in measured]
    found = Scaling(unit, rows, (_amdahl(sizes, rates), _gustafson(sizes, rates)))
    ahead = [] if found.best is None else [sizes[-1] << step for step in range(1, _PROJECTED + 1)]
    projected = [_projected(size, first.ranks, rate, found.best, found.laws) for size in ahead if found.best]
    return Scaling(unit, [*rows, *projected], found.laws)


def _projected(ranks: int, first: int, rate: float, best: Law, laws: Sequence[Law]) -> Row:
    ideal = rate * ranks / first
    edges = [law.throughput(ranks) / ideal for law in laws]
    own = best.throughput(ranks)
    return Row(ranks, own, own / rate, own / ideal, min(edges), max(edges), projected=True)


def _limit(
    first: Measurement, first_cost: float, one: Measurement, cost: float, efficiency: float
) -> tuple[str, str]:
    """Return what limits a size, and why. `cost`: the seconds of a rank for a unit of work.

    The limit is the part of this cost that has grown most since the smallest size.
    """
    if one.straggler is not None:
        return "straggler", f"rank {one.straggler}{f', {one.cause}' if one.cause else ''}"
    now = _parts(one, cost)
    if one is first or efficiency >= _EFFICIENT:
        part = max(now, key=lambda name: now[name])
        return part, f"{now[part] / cost:.0%} of a step".replace("%", " %")
    before = _parts(first, first_cost)
    grown = {name: seconds - before.get(name, 0.0) for name, seconds in now.items()}
    part = max(grown, key=lambda name: grown[name])
    share = min(1.0, grown[part] / max(cost - first_cost, _SAME))
    return _named(part, one), f"{share:.0%} of the loss".replace("%", " %")


def _parts(one: Measurement, cost: float) -> dict[str, float]:
    seconds = {"data": one.data_s, "communication": one.collectives_s, "compute": one.compute_s}
    return {name: part / one.step_s * cost for name, part in seconds.items() if part is not None}


def _named(part: str, one: Measurement) -> str:
    """Return the part. The rest of a step may be communication if nobody has measured that."""
    return "unknown" if part == "compute" and one.ranks > 1 and one.collectives_s is None else part


def _amdahl(sizes: Sequence[int], rates: Sequence[float]) -> Law:
    fixed, shared = _line([1 / size for size in sizes], [1 / rate for rate in rates], rates)
    return _law("Amdahl", fixed, shared, lambda ranks: 1 / (fixed + shared / ranks), sizes, rates)


def _gustafson(sizes: Sequence[int], rates: Sequence[float]) -> Law:
    fixed, growing = _line(sizes, rates, [1 / rate for rate in rates])
    return _law("Gustafson", fixed, growing, lambda ranks: fixed + growing * ranks, sizes, rates)


def _law(
    name: str,
    fixed: float,
    scaled: float,
    throughput: Callable[[float], float],
    sizes: Sequence[int],
    rates: Sequence[float],
) -> Law:
    errors = [(throughput(size) / rate - 1) ** 2 for size, rate in zip(sizes, rates, strict=True)]
    error = math.sqrt(sum(errors) / len(errors))
    exact = len(sizes) == 2 and error < 1e-6
    return Law(name, fixed / (fixed + scaled), None if exact else error, throughput)


def _line(xs: Sequence[float], ys: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """Return `a, b` of the line `a + b * x` with the least squares of relative errors, neither negative."""
    # Each point is divided by its value, so that all sizes count alike.
    ones = list(weights)
    scaled = [x * weight for x, weight in zip(xs, weights, strict=True)]
    values = [y * weight for y, weight in zip(ys, weights, strict=True)]
    oo, os, ss = _dot(ones, ones), _dot(ones, scaled), _dot(scaled, scaled)
    ov, sv = _dot(ones, values), _dot(scaled, values)
    determinant = oo * ss - os * os
    if determinant > 0:
        a, b = (ss * ov - os * sv) / determinant, (oo * sv - os * ov) / determinant
        if a >= 0 and b >= 0:
            return a, b
        return (0.0, sv / ss) if a < 0 else (ov / oo, 0.0)
    return 0.0, sv / ss


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(one * other for one, other in zip(first, second, strict=True))
