"""Contribution of one finder to the card of a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Part"]


@dataclass(frozen=True)
class Part:
    """A longer text, which a view folds under the card."""

    kind: Literal["reason", "traceback", "log", "stacks", "launcher", "rank"]
    """What the text is. The run view draws tracebacks and logs in its own way."""
    title: str
    text: str


@dataclass(frozen=True)
class Finding:
    """Lines and folded parts for a card. Each text is one line and safe to print, except that of a part."""

    title: str = ""
    """What happened, if the finder knows better than the error that was noticed first."""
    what: str = ""
    """The error in one line, with `title`."""
    hints: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    files: str = ""
    parts: tuple[Part, ...] = ()
