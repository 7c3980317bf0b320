"""Events that wake the supervisor: a child's end, a signal, an answer of the backend process, new output."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable

from ..worker.boot import ignore_requests

__all__ = ["Wakeup"]


class Wakeup:
    """A pipe to which signals write. Changes the signal handlers of this process: create one object only."""

    def __init__(self, on_term: Callable[[], None]) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: on_term())
        ignore_requests()

    def wait(self, seconds: float, answers: int | None, heard: tuple[int, float] | None = None) -> bool:
        """Wait for the given seconds or until an event. Returns whether the event was a signal like SIGCHLD.

        `answers`: a descriptor that is readable when the backend process has answered.
        `heard`: a descriptor that is readable when ranks have written, and seconds for which to ignore it.
        """
        called = [self._read, *(() if answers is None else (answers,))]
        first_s = min(seconds, 0.0 if heard is None else heard[1])
        ready = select.select(called, [], [], first_s)[0] if first_s > 0 else []
        if not ready and seconds > first_s:
            news = () if heard is None else (heard[0],)
            ready = select.select([*called, *news], [], [], seconds - first_s)[0]
        if self._read not in ready:
            return False
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)
        return True
