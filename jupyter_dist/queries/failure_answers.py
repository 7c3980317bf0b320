"""The shapes of answers about what went wrong in a run, and where its ranks are in their code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = ["Frame", "RankError", "StackGroup", "Stacks"]


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
    hints: NotRequired[list[str]]
    """What to do about it, of the first failure alone."""


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
