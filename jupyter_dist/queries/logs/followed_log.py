"""Followed log: its last lines are sent together with the message that there are more.

Otherwise a view has to ask for the lines after each message, which costs a round trip to the server.
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
"""Number of lines sent. A view's box shows fewer."""
_MAX_CHARS = 64 << 10
"""Limit of unrequested text. Above it, the view asks for the lines as fast as its connection allows."""


class FollowedLog:
    """One log of one run on one page, and the lines already sent."""

    def __init__(self, rank: int | None, launcher: str | None) -> None:
        self.rank, self.launcher = rank, launcher
        self._logs: pages.AttemptLogs | None = None
        self._told: dict[int, list[int]] = {}

    @staticmethod
    def of(wanted: Mapping[str, Any]) -> FollowedLog | None:
        """Create the log from a page's `{rank, launcher}`, one of which is null.

        Returns None if no log is named.
        """
        rank, launcher = wanted.get("rank"), wanted.get("launcher")
        if not (rank is None or type(rank) is int) or not (launcher is None or isinstance(launcher, str)):
            return None
        return FollowedLog(rank, launcher)

    def tail(self, of: pages.AttemptLogs, status: Status) -> LogTail | None:
        """Return the last lines, without the first ones that were already sent.

        None if they are too much text.
        """
        try:
            page = pages.page_of(of, status, self.rank, -_NEWEST, _NEWEST, self.launcher)
        except DistError:
            return None  # the rank does not exist, or no longer exists
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
