"""Arrays and tensors of any library as numpy's, and what can be said of one in a line.

Nothing is imported for it but numpy, and that only where the value's own library has brought it.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["array_of", "facts", "is_array"]

_MOST = 20_000_000
"""Elements that are looked at; of more there is no range."""


def is_array(value: Any) -> bool:
    """Whether it has a shape of known sizes and a dtype, and is no table."""
    if isinstance(value, type) or hasattr(value, "columns"):
        return False
    return _shape(value) is not None and getattr(value, "dtype", None) is not None


def array_of(value: Any) -> Any:
    """The value as a numpy array, fetched from its device; None where it is none or cannot be had.

    A list of lists is none: what is called an array is meant to be one.
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
        if hasattr(value, "detach"):  # torch's
            value = value.detach()
            value = (value.to_dense() if getattr(value, "is_sparse", False) else value).cpu()
            if str(value.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
                value = value.float()  # numpy has none of these
        found = value.numpy() if hasattr(value, "numpy") else numpy.asarray(value)
        if found.dtype.kind == "V":  # bfloat16 of other libraries
            found = found.astype("float32")
        return found if tuple(found.shape) == shape else None
    except (
        Exception
    ):  # a tensor without data, spread over devices, of a library in trouble: it stays what it is
        return None


def facts(value: Any) -> dict[str, Any]:
    """`type`, `shape` and `dtype` of an array; `min`, `max` and `mean` of what is finite in it, and how many
    elements are not (`special`), where that can be known."""
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
    except (TypeError, ValueError):  # sizes that are not known
        return None


def _dtype(value: Any) -> str:
    dtype = getattr(value, "dtype", "")
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")[:40]
