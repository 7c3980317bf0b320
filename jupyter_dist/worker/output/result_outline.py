"""A short summary of a result that every view can show without unpickling.

A number, a text, or a dict, tuple or dataclass of these become cells in a table of all ranks. An array is
summarised by shape, dtype and range. Views show any other result by its repr, or as a display.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from .arrays import facts, is_array
from .scalars import number

__all__ = ["outline"]

_MOST_CELLS = 64
_MOST_TEXT = 200
_MOST_DEPTH = 3


def outline(value: Any) -> dict[str, Any] | None:
    """Summarise a result as cells or as an array; None for any other value.

    The forms are `{"cells": [{"name", "number" and "text"}, …]}` and `{"array": facts}`. A cell has a
    `number` or only a `text`. For NaN and infinities the `number` is None, and the `text` names the value.
    """
    try:
        if value is None or (isinstance(value, str) and (len(value) > _MOST_TEXT or "\n" in value)):
            return None
        if is_array(value) and tuple(value.shape):
            return {"array": facts(value)}
        cells: list[dict[str, Any]] = []
        for name, held in _items(value, "", 0):
            if len(cells) == _MOST_CELLS:
                return None
            found = _cell(name, held)
            if found is None:
                return None
            cells.append(found)
    except Exception:  # the value may have properties that raise; its repr then describes it
        return None
    return {"cells": cells} if cells else None


def _items(value: Any, prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the names and values in a container. A nested name is prefixed with the outer name."""
    held = _within(value)
    if held is None or depth == _MOST_DEPTH:
        yield prefix, value
        return
    for name, one in held.items():
        yield from _items(one, f"{prefix}/{name}" if prefix else str(name)[:_MOST_TEXT], depth + 1)


def _within(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value if len(value) <= _MOST_CELLS else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value))
    if isinstance(value, (tuple, list)) and 0 < len(value) <= 16:
        return dict(enumerate(value))
    return None


def _cell(name: str, value: Any) -> dict[str, Any] | None:
    if value is None or isinstance(value, (bool, str)):
        return {"name": name, "text": str(value)[:_MOST_TEXT]}
    if is_array(value) and name and tuple(value.shape):
        told = facts(value)
        sizes = " × ".join(map(str, told["shape"]))
        between = f", {told['min']:.4g} – {told['max']:.4g}" if "min" in told else ""
        return {"name": name, "text": f"{told['dtype']} {sizes}{between}"}
    try:
        plain = number(name, value)
    except TypeError:
        return None
    if plain != plain or plain in (float("inf"), float("-inf")):
        return {"name": name, "number": None, "text": str(plain)}
    return {"name": name, "number": plain if abs(plain) < 1 << 53 else float(plain)}
