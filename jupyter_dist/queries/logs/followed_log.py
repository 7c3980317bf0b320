"""The last lines of a log that somebody reads along, told together with the news that there are more.

Who is told of the news alone asks for the lines: a way to the server and back for each look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import DistError
from ...job import Status
from ..answers.logs import LogPage, LogTail
from . import pages

__all__ = ["FollowedLog"]

_NEWEST = 100
"""More than fit into the box of a view."""
_MAX_CHARS = 64 << 10
"""More than that is not told unasked: who asks does it as fast as it comes through."""


class FollowedLog:
    """One log of one run on one page, and what was told of it."""

    def __init__(self, rank: int | None, launcher: str | None) -> None:
        self.rank, self.launcher = rank, launcher
        self._logs: pages.AttemptLogs | None = None
        self._told: dict[int, list[int]] = {}

    @staticmethod
    def of(wanted: Mapping[str, Any]) -> FollowedLog | None:
        """As a page names it: `{rank, launcher}`, one of which is null; None for what names no log."""
        rank, launcher = wanted.get("rank"), wanted.get("launcher")
        if not (rank is None or type(rank) is int) or not (launcher is None or isinstance(launcher, str)):
            return None
        return FollowedLog(rank, launcher)

    def tail(self, of: pages.AttemptLogs, status: Status) -> LogTail | None:
        """The last lines, without the first of them that were told as they are; None where it is too much."""
        try:
            page = pages.page_of(of, status, self.rank, -_NEWEST, _NEWEST, self.launcher)
        except DistError:
            return None  # there is no such rank, or no longer
        lines = page["lines"]
        if self._logs is not of:
            self._logs, self._told = of, {}
        known = 0
        while known < len(lines) and self._told.get(lines[known]["n"]) == lines[known].get("ranks", []):
            known += 1
        new: LogPage = {**page, "start": page["start"] + known, "lines": lines[known:]}
        if sum(len(line["text"]) for line in [*new["lines"], *new["partial"]]) > _MAX_CHARS:
            return None
        self._told = {line["n"]: line.get("ranks", []) for line in lines}
        return {"rank": self.rank, "launcher": self.launcher, "page": new}
