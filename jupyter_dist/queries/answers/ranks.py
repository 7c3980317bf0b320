"""Answers about ranks: failures, stacks, progress, results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    "CardPart",
    "Cell",
    "FailureCard",
    "Frame",
    "Progress",
    "RankError",
    "RankProgress",
    "Result",
    "StackGroup",
    "Stacks",
]


class Frame(TypedDict):
    """One call in a traceback or in a stack."""

    file: NotRequired[str]
    label: str
    line: int | None
    function: str
    source: str


class RankError(TypedDict):
    """How one rank failed."""

    rank: int
    time: NotRequired[float]
    kind: Literal["exception", "exit", "signal", "lost"]
    type: str
    message: str
    text: str
    frames: list[Frame]
    exit_code: int | None
    signal_name: str | None
    peak_memory_bytes: int | None
    collateral: bool
    """Whether it failed because another rank did."""
    host: str | None


class CardPart(TypedDict):
    """A longer text, which is folded under a card."""

    kind: Literal["reason", "traceback", "log", "stacks", "launcher", "rank"]
    title: str
    text: str


class FailureCard(TypedDict):
    """What happened to a run that failed or was stopped, what to do, why and where."""

    title: str
    """What happened, such as `rank 1 failed first`."""
    about: str
    """Host, attempt and exit code; empty if unknown."""
    what: str
    """The error in one line."""
    hints: list[str]
    """What to do about it."""
    causes: list[str]
    """Why, besides the error itself."""
    places: list[str]
    """Where the ranks were."""
    others: list[str]
    """What became of the other ranks."""
    files: str
    """Where all of it is on the disk."""
    parts: list[CardPart]


class StackGroup(TypedDict):
    """Ranks that are at the same place of their code."""

    ranks: list[int]
    frames: list[Frame]


class Stacks(TypedDict):
    """Where the ranks are in their code."""

    groups: list[StackGroup]
    silent: list[int]
    """Ranks that gave no stack."""
    hint: NotRequired[str]
    """Says which ranks are elsewhere than most; empty where none is."""
    time: NotRequired[float]
    """When the newest was taken, of those that are kept."""


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
