"""Numbers of curves as JSON: no more digits than a screen shows."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["numbers", "seconds", "whole"]

Floats = npt.NDArray[np.float64]


def seconds(times: Floats) -> list[float | None]:
    """Round times to hundredths. NaN becomes None."""
    return [None if math.isnan(time) else time for time in np.round(times, 2).tolist()]


def whole(steps: Floats) -> list[float]:
    """Return the steps as whole numbers if all are whole.

    Nearly all are, and whole numbers are shorter to send.
    """
    fits = bool((np.abs(steps) < 2**53).all() and (steps == np.floor(steps)).all())
    found: list[float] = (steps.astype(np.int64) if fits else steps).tolist()
    return found


def numbers(values: Floats) -> list[float | None]:
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
