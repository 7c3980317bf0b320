"""The shapes of the answers about what ranks report: how far they are, their results. See answers.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = ["Cell", "Progress", "RankProgress", "Result"]


class Progress(TypedDict):
    """How far a progress bar is."""

    n: float
    total: float | None
    desc: str
    rate: float | None
    """Steps a second; null while unknown."""
    note: NotRequired[str]
    """What the bar says behind its count, such as a loss."""
    unit: NotRequired[str]
    """What is counted, where the bar says so; `B`: bytes."""


class RankProgress(Progress):
    """The bar that a rank shows."""

    rank: int
    id: NotRequired[int]
    """Tells apart the bars of one rank."""
    inner: NotRequired[list[Progress]]
    """The bars within it, outermost first."""


class Cell(TypedDict):
    """One value within a result."""

    name: str
    """Empty where the result is this value."""
    number: NotRequired[float | None]
    """Of a number; null where it is not finite, which `text` names."""
    text: str


class Result(TypedDict):
    """What the result of some ranks looks like."""

    ranks: list[int]
    repr: str
    error: str | None
    bytes: float | None
    cells: NotRequired[list[Cell]]
    """Of a number or a text, and of a dict or a tuple of these."""
    array: NotRequired[str]
    """Of an array: its type, shape, dtype and range."""
