"""Arrays and tensors of any library, converted to numpy and summarised in one line.

This module imports only numpy, and only if the value's own library has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["array_of", "facts", "is_array"]

_MOST = 20_000_000
"""The largest number of elements that are read. A larger array gets no range."""


def is_array(value: Any) -> bool:
    """Return whether the value has a shape of fixed sizes and a dtype, and is not a table."""
    if isinstance(value, type) or hasattr(type(value), "columns"):  # reading a lazy table's may be slow
        return False
    return _shape(value) is not None and getattr(value, "dtype", None) is not None


def array_of(value: Any) -> Any:
    """Return the value as a numpy array, copied from its device.

    Returns None if the value is not an array or cannot be copied. A list of lists is not an array.
    """
    numpy = sys.modules.get("numpy")
    shape = _shape(value)
    if numpy is None or shape is None or not is_array(value):
        return None
    size = 1
    for side in shape:
        size *= side
    if size > _MOST:
        return None
    try:
        if isinstance(value, numpy.ndarray):
            return numpy.asarray(value)
        if hasattr(value, "detach"):  # a tensor of torch
            value = value.detach()
            value = (value.to_dense() if getattr(value, "is_sparse", False) else value).cpu()
            if str(value.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
                value = value.float()  # numpy has none of these types
        found = value.numpy() if hasattr(value, "numpy") else numpy.asarray(value)
        if found.dtype.kind == "V":  # bfloat16 of other libraries
            found = found.astype("float32")
        return found if tuple(found.shape) == shape else None
    except (
        Exception
        # A tensor may have no data, be spread over devices, or belong to a broken library. The value stays
        # unchanged then.
    ):
        return None


def facts(value: Any) -> dict[str, Any]:
    """Return `type`, `shape` and `dtype` of an array, and facts about its numbers if they can be read.

    `min`, `max` and `mean` are of the finite elements. `special` is the number of the other elements.
    """
    found: dict[str, Any] = {
        "type": type(value).__name__,
        "shape": list(_shape(value) or ()),
        "dtype": _dtype(value),
    }
    device = str(getattr(value, "device", "") or "")
    if device and "cpu" not in device.lower():
        found["device"] = device[:40]
    array = array_of(value)
    if array is not None and array.size and array.dtype.kind in "biuf":
        numpy = sys.modules["numpy"]
        if array.dtype.kind == "f":
            array = array.astype("float64", copy=False)
            finite = numpy.isfinite(array)
            special = int(array.size - finite.sum())
            if special:
                found["special"] = special
                array = array[finite]
        if array.size:
            found |= {"min": float(array.min()), "max": float(array.max())}
            found["mean"] = float(array.mean(dtype="float64"))
    return found


def _shape(value: Any) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    try:
        return None if shape is None or callable(shape) else tuple(int(side) for side in shape)
    except (TypeError, ValueError):  # some sizes are unknown
        return None


def _dtype(value: Any) -> str:
    dtype = getattr(value, "dtype", "")
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")[:40]
