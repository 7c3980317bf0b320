"""Count progress and report it at most ten times a second."""

from __future__ import annotations

import heapq
import threading
import time

from . import events

__all__ = ["Meter"]

_EVERY_S = 0.1
_lock = threading.Lock()
_free: list[int] = []
_made = 0


class Meter:
    """One progress bar of this rank. Reports the first and the last count and about ten a second between.

    Its id is the lowest that no open meter has, so that a loop within a loop keeps one bar.
    """

    def __init__(self, total: int | None, desc: str) -> None:
        global _made
        with _lock:
            if _free:
                self.id = heapq.heappop(_free)
            else:
                self.id = _made
                _made += 1
        self.total = total
        self.desc = desc
        self.n = 0
        self._said: tuple[int, int | None, str] | None = None
        self._next = 0.0
        self._open = True
        self._say()

    def update(self, n: int) -> None:
        """Set the count."""
        self.n = n
        if time.monotonic() >= self._next:
            self._say()

    def close(self) -> None:
        """Report where it stopped and free the id. Repeatable."""
        if self._open:
            self._open = False
            try:
                self._say()
            finally:
                with _lock:
                    heapq.heappush(_free, self.id)

    def _say(self) -> None:
        self._next = time.monotonic() + _EVERY_S
        now = (self.n, self.total, self.desc)
        writer = events.writer()
        if writer is not None and now != self._said:
            self._said = now
            writer.progress(self.id, *now)
