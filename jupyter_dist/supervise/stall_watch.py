"""Detection of a run that has stalled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..folder import RunFolder
from ..job import Stall, Status
from ..record.failures import parting
from .status_writer import log

__all__ = ["StallWatch"]

_FIRST_LOOK_S = 60.0
"""Seconds of silence after which the watch asks the ranks where they are. It asks again after twice the time.

Rank 0 often evaluates or saves for a while, and the other ranks wait for it. That is no stall.
"""
_ANSWERS_S = 3.0
"""Seconds in which ranks write their stacks and their records of collectives."""


class StallWatch:
    """Silence of all ranks for the limit is a stall. So is a shorter silence in which ranks have parted.

    Ranks have parted if some wait in a call that others have not made (record/failures/parting.py).
    """

    def __init__(
        self, folder: RunFolder, limit_s: float, ask: Callable[[], None], first_look_s: float = _FIRST_LOOK_S
    ) -> None:
        """`ask` requests the stacks of all ranks. It returns at once."""
        self._folder, self._limit_s, self._ask, self._first_look_s = folder, limit_s, ask, first_look_s
        self._active = 0.0
        self._next_s = first_look_s
        self._read_at: float | None = None
        self._reader: threading.Thread | None = None
        self._found = ""

    def look(self, active: float, now: float, status: Status) -> Stall | None:
        """Return the run's stall, which may have been found before. The arguments are those of `stalled`."""
        if status.stall is not None or not self.stalled(active, now, status):
            return status.stall
        noticed = time.time()
        return Stall(since=noticed - (now - active), noticed=noticed)

    def stalled(self, active: float, now: float, status: Status) -> bool:
        """Return whether the run has stalled. Call it at least once a second, at the same clock as `active`.

        Args:
            active: when a rank last printed or logged.
        """
        if active != self._active:
            self._active, self._next_s, self._read_at, self._found = active, self._first_look_s, None, ""
        silent_s = now - active
        if silent_s >= self._limit_s:
            log(f"no rank has printed or logged for {self._limit_s:g} s")
            self._ask()
            return True
        if silent_s >= self._next_s:
            self._next_s *= 2
            self._read_at = now + _ANSWERS_S
            self._ask()
        elif self._read_at is not None and now >= self._read_at and not self._is_reading:
            self._read_at = None
            # The records of many ranks are large, and the supervisor's loop must not wait for them.
            self._reader = threading.Thread(target=self._read, args=(active, status), daemon=True)
            self._reader.start()
        if self._found:
            log(f"the ranks have parted: {self._found}")
        return bool(self._found)

    @property
    def _is_reading(self) -> bool:
        return self._reader is not None and self._reader.is_alive()

    def _read(self, active: float, status: Status) -> None:
        found = parting.of_running(self._folder, status)
        if active == self._active:
            self._found = found
