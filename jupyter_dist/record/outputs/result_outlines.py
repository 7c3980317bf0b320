"""Checks of the outlines of results (worker/output/result_outline.py): a rank may write anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...text.safe import one_line

__all__ = ["Array", "Cell", "Outline", "checked"]

_MOST_CELLS = 64
_MOST_SIDES = 32


class Cell(NamedTuple):
    """One value of a result: a number or a text.

    If a number is not finite, `number` is None and `text` has it.
    """

    name: str
    number: float | None
    text: str | None

    @property
    def is_number(self) -> bool:
        return self.number is not None or self.text in ("nan", "inf", "-inf")


class Array(NamedTuple):
    """Summary of an array or a tensor."""

    type: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    min: float | None
    max: float | None
    mean: float | None
    special: int
    """Number of elements that are not finite."""

    def __str__(self) -> str:
        """Return for example `Tensor 3 × 4 float32 on cuda:0, 0 to 0.5, mean 0.25, 2 not finite`."""
        parts = [f"{self.type} {' × '.join(map(str, self.shape)) or 'of one number'} {self.dtype}"]
        if self.device:
            parts[0] += f" on {self.device}"
        if self.min is not None and self.max is not None:
            parts.append(f"{self.min:.4g} to {self.max:.4g}")
        if self.mean is not None:
            parts.append(f"mean {self.mean:.4g}")
        if self.special:
            parts.append(f"{self.special:,} not finite")
        return ", ".join(parts)


class Outline(NamedTuple):
    """Outline of a result: either cells or an array."""

    cells: tuple[Cell, ...] = ()
    array: Array | None = None


def checked(told: Any) -> Outline | None:
    """Return the outline in an event, or None if there is no valid outline."""
    if not isinstance(told, Mapping):
        return None
    try:
        if "array" in told:
            return Outline(array=_array(told["array"]))
        cells = tuple(_cell(cell) for cell in told["cells"][:_MOST_CELLS])
        return Outline(cells) if cells else None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _cell(told: Mapping[str, Any]) -> Cell:
    number, text = told.get("number"), told.get("text")
    return Cell(
        one_line(str(told["name"]), 80),
        _number(number),
        None if text is None else one_line(str(text), 200),
    )


def _array(told: Mapping[str, Any]) -> Array:
    return Array(
        one_line(str(told["type"]), 60),
        tuple(int(side) for side in told["shape"][:_MOST_SIDES]),
        one_line(str(told["dtype"]), 40),
        one_line(str(told.get("device") or ""), 40),
        _number(told.get("min")),
        _number(told.get("max")),
        _number(told.get("mean")),
        int(_number(told.get("special")) or 0),
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -1e308 < value < 1e308 else None
