"""Conversion of numbers of users and frameworks to an int or a float."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

__all__ = ["loose", "number", "step_number"]

_PLAIN = (bool, int, float)


def number(name: str, value: Any) -> float:
    """Return `value` as a plain int or float: a number, a bool, or a 0-d numpy, torch or TensorFlow value.

    Raises TypeError that names the metric and the type.
    Blocks until the device has computed the value.
    """
    if isinstance(value, _PLAIN):
        # numpy's float64 is a float whose repr is not a number. An int may be an enum.
        return float(value) if isinstance(value, float) else int(value)
    shape = getattr(value, "shape", None)
    if shape is not None and not callable(shape):
        try:
            sizes = tuple(shape)
        except (TypeError, ValueError):
            # A shape inside a tf.function can be unknown.
            sizes = (None,)
        if sizes:
            raise TypeError(
                f"{name!r} is a {_type_name(value)} of shape {sizes}; a metric is one number. "
                "Reduce it first, for example with .mean(), or log how its values are spread: "
                f"histogram={{{name!r}: …}}."
            )
        plain = _item(value)
        if isinstance(plain, _PLAIN):
            return float(plain) if isinstance(plain, float) else int(plain)
    raise TypeError(
        f"{name!r} is a {_type_name(value)}, which is not a number. "
        "A metric is an int, a float, a bool or a 0-d numpy, torch or TensorFlow value."
    )


def loose(values: Mapping[Any, Any]) -> dict[str, float]:
    """Return a framework's values that are one number. A size-1 array counts as its element."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if type(value) is float or type(value) is int:
            found[str(name)] = value
            continue
        if getattr(value, "ndim", 0):
            value = _item(value)
        try:
            found[str(name)] = number(str(name), value)
        except TypeError:
            continue
    return found


def step_number(step: Any) -> int:
    """Return `step` as an int.

    Raises TypeError naming the type.
    """
    try:
        return operator.index(step)
    except TypeError:
        pass
    plain = _item(step)
    if isinstance(plain, int):
        return int(plain)
    raise TypeError(f"step is a {_type_name(step)}; it must be an int, or None for the next one.")


def _item(value: Any) -> Any:
    """Return the element of a one-element array, or None if there is no such element."""
    for method in ("item", "numpy"):
        get = getattr(value, method, None)
        if callable(get):
            try:
                found = get()
            except Exception:  # array libraries raise various errors for a value that is not one number
                continue
            return found.item() if method == "numpy" and hasattr(found, "item") else found
    return None


def _type_name(value: Any) -> str:
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
