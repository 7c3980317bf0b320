"""Progress counts that are reported at most ten times a second. The texts beside them have the same limit."""

from __future__ import annotations

import heapq
import os
import threading
import time

from . import events

__all__ = ["Meter"]

_EVERY_S = 0.1
_lock = threading.Lock()
_free: list[int] = []
_made = 0
_pid = os.getpid()


class Meter:
    """One progress bar of this rank. It reports the first and the last count and about ten a second between.

    Its id is the lowest that no open meter has, so that a loop within a loop keeps one bar. `unit` is the
    counted unit, if there is one. `note` is the text after the count, such as `loss=0.3`.
    """

    def __init__(self, total: float | None, desc: str, unit: str = "") -> None:
        self.id = _new_id()
        self.total = total
        self.desc = desc
        self.unit = unit
        self.note = ""
        self.n: float = 0
        self._said: tuple[float, float | None, str, str] | None = None
        self._next = self._next_text = 0.0
        self._open = True
        self._say()

    def update(self, n: float) -> None:
        """Set the count."""
        self.n = n
        now = time.monotonic()
        if now >= self._next:
            self._say()
        elif now >= self._next_text and self._said is not None and (self.desc, self.note) != self._said[2:]:
            self._next_text = now + _EVERY_S  # a bar updates its text right after its count, not with it
            self._say()

    def close(self) -> None:
        """Report the final count and free the id. Repeatable."""
        if self._open:
            self._open = False
            try:
                self._say(closed=True)
            finally:
                with _lock:
                    heapq.heappush(_free, self.id)

    def _say(self, closed: bool = False) -> None:
        self._next = time.monotonic() + _EVERY_S
        said = (self.n, self.total, self.desc, self.note)
        writer = events.writer()
        if writer is not None and (closed or said != self._said):
            self._said = said
            writer.progress(self.id, *said, self.unit, closed)


def _new_id() -> int:
    global _made, _pid
    with _lock:
        if os.getpid() != _pid:  # a process that the rank has forked needs bars of its own
            _pid = os.getpid()
            _free.clear()
            _made = _pid << 16
        if _free:
            return heapq.heappop(_free)
        _made += 1
        return _made - 1
