"""Thinning of curves for drawing: fewer points, fewer digits, a band instead of many ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from ..answers.metrics import Band, RankCurve

__all__ = ["band", "share", "thinned"]

Floats = npt.NDArray[np.float64]
_ALL_POINTS = 32_000
"""Points of one metric in an answer, for all ranks together. A browser draws that many without effort."""
_LEAST_POINTS = 250
_SPECIALS = 200


def share(points: int, ranks: int) -> int:
    """Return how many points each rank's curve gets, if the caller asked for `points`."""
    return max(min(points, _LEAST_POINTS), min(points, _ALL_POINTS // ranks))


def thinned(rank: int, steps: Floats, values: Floats, times: Floats, points: int) -> RankCurve:
    """Return a rank's curve with about that many points: the first, the last, and the extremes."""
    special = np.flatnonzero(~np.isfinite(values))
    if len(values) > points:
        kept = _kept(values, special, points)
        shown_steps, shown, shown_times = steps[kept], values[kept], times[kept]
    else:
        shown_steps, shown, shown_times = steps, values, times
    return {
        "rank": rank,
        "steps": _whole(shown_steps),
        "values": _numbers(shown),
        "times": [None if math.isnan(t) else t for t in np.round(shown_times, 2).tolist()],
        "count": len(values),
        "special": [
            {"step": _whole(steps[i : i + 1])[0], "value": _name(values[i])} for i in special[:_SPECIALS]
        ],
    }


def _kept(values: Floats, special: npt.NDArray[np.intp], points: int) -> npt.NDArray[np.intp]:
    """Return indices of the first and last value, each stretch's extremes, and values not finite."""
    buckets = max(1, points // 2 - 1)
    width = -(-len(values) // buckets)
    padded = np.full(buckets * width, np.nan)
    padded[: len(values)] = values
    stretches = padded.reshape(buckets, width)
    finite = np.isfinite(stretches)
    used = np.flatnonzero(finite.any(axis=1))
    low = np.where(finite, stretches, np.inf).argmin(axis=1)[used] + used * width
    high = np.where(finite, stretches, -np.inf).argmax(axis=1)[used] + used * width
    return np.unique(np.concatenate([[0, len(values) - 1], low, high, special[:_SPECIALS]]))


def band(by_rank: Mapping[int, tuple[Floats, Floats, Floats]], points: int) -> Band:
    """Return mean, lowest and highest of the finite values of all ranks, by step or by stretches of steps."""
    steps = np.concatenate([arrays[0] for arrays in by_rank.values()])
    values = np.concatenate([arrays[1] for arrays in by_rank.values()])
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    if not len(steps):
        return {"steps": [], "mean": [], "min": [], "max": []}
    first, last = steps.min(), steps.max()
    place = np.round(steps - first).astype(np.int64)
    if last - first >= points:
        place = ((steps - first) * (points / (last - first + 1))).astype(np.int64)
    size = int(place.max()) + 1
    number = np.bincount(place, minlength=size)
    used = number > 0
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, place, values)
    np.maximum.at(high, place, values)
    middle = np.bincount(place, steps, size)[used] / number[used]
    mean = np.bincount(place, values, size)[used] / number[used]
    return {
        "steps": _whole(np.round(middle)),
        "mean": _numbers(mean),
        "min": _numbers(low[used]),
        "max": _numbers(high[used]),
    }


def _whole(steps: Floats) -> list[float]:
    """Return the steps as whole numbers if all are whole.

    Nearly all are, and whole numbers are shorter to send.
    """
    whole = bool((np.abs(steps) < 2**53).all() and (steps == np.floor(steps)).all())
    found: list[float] = (steps.astype(np.int64) if whole else steps).tolist()
    return found


def _numbers(values: Floats) -> list[float | None]:
    """Round to seven digits, which is finer than a screen's pixels.

    Values that are not finite become None.
    """
    with np.errstate(all="ignore"):
        scale = 10.0 ** (6 - np.floor(np.log10(np.abs(values))))
        rounded = np.round(values * scale) / scale
    rounded = np.where(np.isfinite(rounded), rounded, values)  # 0, and values too small to be scaled
    found: list[float | None] = rounded.tolist()
    if not np.isfinite(rounded).all():
        return [value if value is not None and math.isfinite(value) else None for value in found]
    return found


def _name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
