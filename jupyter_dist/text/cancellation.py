"""Cancellation of work that nobody waits for any more."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import DistError

__all__ = ["Cancellation"]


class Cancellation:
    """Cancellation of one piece of work. Any thread may cancel it, also before it begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._calls: list[Callable[[], object]] = []

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def check(self) -> None:
        """Raise DistError if the work was cancelled."""
        if self._cancelled:
            raise DistError("The work was cancelled, because its answer is no longer wanted.")

    def on_cancel(self, call: Callable[[], object]) -> None:
        """Call this once the work is cancelled, or now if it was."""
        with self._lock:
            if not self._cancelled:
                self._calls.append(call)
                return
        call()
