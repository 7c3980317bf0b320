"""Answers about logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = ["LogChange", "LogLine", "LogPage", "LogTail", "PartialLine", "SearchResult"]


class PartialLine(TypedDict):
    """The last line of a log, which has no newline yet, such as a progress bar."""

    rank: int | None
    time: float
    text: str
    cut: NotRequired[bool]


class LogLine(TypedDict):
    """One line of a log."""

    n: int
    """Index in this view of the log, from 0."""
    rank: int | None
    """null for a launcher's line."""
    ranks: NotRequired[list[int]]
    """The ranks that wrote this line, folded; only where all ranks are shown."""
    time: float
    text: str
    cut: NotRequired[bool]
    """A part of the line was left out because it is very long."""


class LogPage(TypedDict):
    """Lines of a log, one after the other."""

    attempt: NotRequired[int]
    start: int
    total: int
    settled: NotRequired[int]
    """Rows before this one are final; later ones may still gain `ranks`, nothing else."""
    complete: bool
    """Whether the log grows no more."""
    lines: list[LogLine]
    partial: NotRequired[list[PartialLine]]
    """Where the page reaches the end: the last lines that are not finished, such as progress bars."""


class SearchResult(TypedDict):
    """Which lines of a log hold what was searched for."""

    count: int
    hits: list[int]
    """Line indexes, ascending; when `truncated`, only the last ones."""
    truncated: bool


class LogTail(TypedDict):
    """What is new among the last lines of a log that a page reads along."""

    rank: int | None
    """Null for the log of all ranks, and for that of a launcher."""
    launcher: str | None
    page: LogPage


class LogChange(TypedDict):
    """A log has grown; `ranks`, `launchers` and `all` are numbers of lines."""

    kind: Literal["log"]
    id: str
    attempt: NotRequired[int]
    ranks: dict[str, int]
    launchers: NotRequired[dict[str, int]]
    all: int
    complete: NotRequired[bool]
    tails: NotRequired[list[LogTail]]
    """Of the logs that the page reads along; what is left out has to be asked for."""
    push: NotRequired[int]
    """Comes with `tails`: the page says when it has got this one."""
