"""Thinning of a rank's curve for drawing: fewer points, and fewer digits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..answers.metrics import RankCurve
from .rounding import numbers, seconds, whole
from .series import Floats, Series

__all__ = ["bare", "share", "thinned"]

_ALL_POINTS = 32_000
"""Points of one metric in an answer, for all ranks together. A browser draws that many without effort."""
_LEAST_POINTS = 250
_SPECIALS = 200


def share(points: int, ranks: int) -> int:
    """Return how many points each rank's curve gets, if the caller asked for `points`."""
    return max(min(points, _LEAST_POINTS), min(points, _ALL_POINTS // ranks))


def bare(rank: int, series: Series) -> RankCurve:
    """Return what is to be said of a rank whose points are not sent."""
    found: RankCurve = {"rank": rank, "steps": [], "values": [], "times": [], "count": len(series.values)}
    bad = series.not_finite()
    return found if bad is None else {**found, "not_finite": bad}


def thinned(rank: int, series: Series, points: int) -> RankCurve:
    """Return a rank's curve with about that many points: the first, the last, and the extremes."""
    steps, values, times = series.since(0)
    special = series.bad(_SPECIALS)
    if len(values) > points:
        kept = _kept(values, special, points)
        steps, values, times = steps[kept], values[kept], times[kept]
    return {
        **bare(rank, series),
        "steps": whole(steps),
        "values": numbers(values),
        "times": seconds(times),
        "special": [series.special(index) for index in special],
    }


def _kept(values: Floats, special: list[int], points: int) -> npt.NDArray[np.intp]:
    """Return indices of the first and last value, each stretch's extremes, and values not finite.

    Stretches are a power of two long. So a longer curve keeps the same points, until the length doubles.
    """
    width = 1 << (-(-len(values) // max(1, points // 2 - 1)) - 1).bit_length()
    buckets = -(-len(values) // width)
    padded = np.full(buckets * width, np.nan)
    padded[: len(values)] = values
    stretches = padded.reshape(buckets, width)
    finite = np.isfinite(stretches)
    used = np.flatnonzero(finite.any(axis=1))
    low = np.where(finite, stretches, np.inf).argmin(axis=1)[used] + used * width
    high = np.where(finite, stretches, -np.inf).argmax(axis=1)[used] + used * width
    ends = [0, len(values) - 1]
    return np.unique(np.concatenate([ends, low, high, special]).astype(np.intp))
