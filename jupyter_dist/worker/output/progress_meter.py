"""Progress counts that are reported at most ten times a second. Texts beside them have their own limit."""

from __future__ import annotations

import contextlib
import heapq
import os
import threading
import time

from . import events

__all__ = ["Meter"]

_EVERY_S = 0.1
_lock = threading.RLock()
_free: list[int] = []
_made = 0
_started: dict[str, int] = {}
"""By description: how many meters have started with it."""
_held: set[Meter] = set()
"""Meters whose newest count or text is not reported yet."""
_reporting = False
"""Whether a thread reports what is held."""


class Meter:
    """One progress bar of this rank. It reports the first and the last count and about ten a second between.

    A count or text that comes too soon is reported by the next call, or by a thread after at most 0.2 s.
    The id of a meter is the lowest that no open meter has, so that a loop within a loop keeps one bar. `unit`
    is the counted unit, if there is one. `note` is the text after the count, such as `loss=0.3`.
    """

    def __init__(self, total: float | None, desc: str, unit: str = "") -> None:
        self.id = _new_id()
        self.total = total
        self.desc = self._first = desc
        self.unit = unit
        self._began = round(events.now(), 3)
        self._nth = _started[desc] = _started.get(desc, -1) + 1
        self.note = ""
        self.n: float = 0
        self._said: tuple[float, float | None, str, str] | None = None
        self._next = self._next_text = 0.0
        self._open = True
        self.report()

    def update(self, n: float) -> None:
        """Set the count."""
        self.n = n
        now = time.monotonic()
        # A text never delays a count: tqdm reports both, one right after the other.
        if now >= self._next or (now >= self._next_text and self._text_changed()):
            self.report()
        elif self not in _held:
            _hold(self)

    def close(self) -> None:
        """Report the final count and free the id. Repeatable."""
        if self._open:
            self._open = False
            try:
                self.report(closed=True)
            finally:
                with _lock:
                    heapq.heappush(_free, self.id)

    def report(self, closed: bool = False) -> None:
        """Report the count and the text now, if they have changed."""
        with _lock:  # otherwise the thread could report an older count last
            _held.discard(self)
            if not self._open and not closed:
                return
            said = (self.n, self.total, self.desc, self.note)
            now = time.monotonic()
            if self._said is None or said[:2] != self._said[:2]:
                self._next = now + _EVERY_S
            if self._text_changed():
                self._next_text = now + _EVERY_S
            writer = events.writer()
            if writer is not None and (closed or said != self._said):
                self._said = said
                loop = (self._began, self._nth, self._first)
                writer.progress(self.id, *said, self.unit, closed, loop)

    def _text_changed(self) -> bool:
        return self._said is not None and (self.desc, self.note) != self._said[2:]


def _hold(meter: Meter) -> None:
    global _reporting
    with _lock:
        _held.add(meter)
        if _reporting:
            return
        try:
            threading.Thread(target=_report_held, name="jupyter-dist-progress", daemon=True).start()
            _reporting = True
        except RuntimeError:
            meter.report()  # no thread can start, as at the end of the process


def _report_held() -> None:
    """Report what is held until nothing is."""
    global _reporting
    while True:
        time.sleep(_EVERY_S)
        with _lock:
            if not _held:
                _reporting = False
                return
            for meter in list(_held):
                with contextlib.suppress(OSError, ValueError):  # the rank has just closed its file
                    meter.report()


def _new_id() -> int:
    global _made
    with _lock:
        if _free:
            return heapq.heappop(_free)
        _made += 1
        return _made - 1


def _forked() -> None:
    """Give a process that the rank has forked bars of its own. The thread and its lock stay with the rank."""
    global _lock, _made, _reporting
    _lock = threading.RLock()
    _free.clear()
    _held.clear()
    _started.clear()
    _made = os.getpid() << 16
    _reporting = False


os.register_at_fork(after_in_child=_forked)
