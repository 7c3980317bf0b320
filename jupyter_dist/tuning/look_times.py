"""Times at which to read a service's tuning job: soon after news, and seldom while nothing changes."""

from __future__ import annotations

import time

__all__ = ["LookTimes"]

_SOON_S, _SELDOM_S, _GROWTH = 2.0, 20.0, 1.2


class LookTimes:
    """Times of one reader's looks. Each look costs requests, and a service limits those of an account."""

    def __init__(self) -> None:
        self._every_s, self._due, self._seen = _SOON_S, 0.0, object()

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def looked(self, seen: object = None) -> None:
        """Record a look and what it has found. While that stays the same, the intervals grow to 20 s."""
        self._every_s = min(self._every_s * _GROWTH, _SELDOM_S) if seen == self._seen else _SOON_S
        self._seen = seen
        self._due = time.monotonic() + self._every_s

    def expect_news(self) -> None:
        """Look again within 2 s, because something has happened that will change the job."""
        self._every_s = _SOON_S
        self._due = min(self._due, time.monotonic() + _SOON_S)
