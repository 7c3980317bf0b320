"""Answers about displays and logged media."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    *("Content", "Display", "Displays", "DisplaysChange", "Exhibit"),
    *("KeptMedia", "Logged", "MediaList", "MediaPage", "MediaSeries", "Place"),
]


class Content(TypedDict):
    """One MIME type of what is shown. All of it comes from a rank: nothing in it is to be trusted."""

    mime: str
    text: NotRequired[str]
    """All of it, where it is text and small."""
    json: NotRequired[Any]
    """All of it, where it is JSON and small."""
    offset: NotRequired[int]
    """Else where it is: with `bytes` and `hash` what `content` is asked for."""
    bytes: NotRequired[int]
    hash: NotRequired[str]
    base64: NotRequired[str]
    """All of it, where a notebook's file keeps it."""
    lost: NotRequired[bool]
    """It never came, as its rank or its host was lost before."""


class Exhibit(TypedDict):
    """What some ranks show, all of them the same."""

    ranks: list[int]
    """The first of them is whom `content` is asked for."""
    time: float
    contents: list[Content]
    metadata: dict[str, Any]
    """By MIME type: how to draw it, such as a width."""


class Place(TypedDict):
    """Where in the logs what a rank shows stands."""

    rank: int
    line: int
    """In the rank's own log: the first of the lines that say in text what is shown, or the one before it."""
    lines: int
    """So many say it in text; 0: the line says something else, and what is shown stands below it."""
    row: int
    """The same in the log of all ranks."""
    rows: int


class Display(TypedDict):
    """What the ranks show at one place of the cell."""

    key: str
    """Stays the same while the run goes on."""
    line: int | None
    """Of the cell; null where it is not known."""
    result: bool
    """It is what the last expression gave."""
    exhibits: list[Exhibit]
    """Ranks that show the same are together."""
    more_ranks: int
    """Ranks that are left out, as too many differ."""
    places: NotRequired[list[Place]]
    """In the logs, rank by rank, as far as they are known; none for a result."""


class Displays(TypedDict):
    """A page of what the ranks show now."""

    attempt: int
    version: int
    """Grows with each change."""
    start: int
    total: int
    displays: list[Display]


class MediaSeries(TypedDict):
    """What was logged under one name, step by step."""

    name: str
    type: Literal["image", "text", "table", "histogram"]
    count: int
    """How many steps there are."""
    first_step: int
    last_step: int
    ranks: list[int]


class MediaList(TypedDict):
    """What was logged besides numbers."""

    attempt: int
    version: int
    series: list[MediaSeries]


class Logged(TypedDict):
    """What the ranks logged at one step."""

    step: int
    exhibits: list[Exhibit]
    more_ranks: int


class MediaPage(TypedDict):
    """Some steps of a series, in their order."""

    name: str
    start: int
    total: int
    steps: list[Logged]


class KeptMedia(TypedDict):
    """What was logged besides numbers, for where nobody can be asked: of each name the last step."""

    list: MediaList
    pages: list[MediaPage]


class DisplaysChange(TypedDict):
    """Ranks show something new, or have logged more than numbers."""

    kind: Literal["displays"]
    id: str
    version: int
