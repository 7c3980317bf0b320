"""Downloads that a view requests piece by piece. A download that the view no longer continues is ended.

A view that closes during a download sends no message. Without a limit, its open file and its position in a
large log would stay open as long as the kernel lives.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..errors import DistError

__all__ = ["Downloads"]

_LEFT_S = 60.0
"""Timeout between two pieces. It is long for slow connections and busy kernels."""
_MOST = 8
_REMEMBERED = 100


@dataclass
class _Open:
    pieces: Iterator[bytes]
    asked: float = field(default_factory=time.monotonic)
    busy: bool = False


class Downloads:
    """Downloads of one widget, at most eight at a time. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._left: deque[str] = deque(maxlen=_REMEMBERED)
        self._timer: threading.Timer | None = None

    def next(self, key: str, begin: Callable[[], Iterator[bytes]]) -> bytes | None:
        """Return the next piece of the download `key`, which `begin` starts. None at its end.

        Raises DistError if the download has expired. Starting it again here would repeat the earlier pieces.
        """
        found = self._take(key, begin)
        piece = None
        try:
            piece = next(found.pieces, None)
        finally:
            with self._lock:
                found.busy, found.asked = False, time.monotonic()
                if piece is None:
                    self._open.pop(key, None)
        return piece

    def close(self) -> None:
        """End all downloads."""
        with self._lock:
            self._end([key for key, found in self._open.items() if not found.busy])
            if self._timer is not None:
                self._timer.cancel()

    def _take(self, key: str, begin: Callable[[], Iterator[bytes]]) -> _Open:
        with self._lock:
            if key in self._left:
                raise DistError("this download was left for a while, and has ended: start it again")
            found = self._open.get(key)
            if found is None:
                idle = [name for name, known in self._open.items() if not known.busy]
                self._end(idle[: max(0, len(self._open) - _MOST + 1)])
                found = self._open[key] = _Open(begin())
                self._look_later()
            elif found.busy:
                raise DistError("the piece before of this download is still on its way")
            found.busy = True
            return found

    def _end(self, keys: list[str]) -> None:
        for key in keys:
            self._left.append(key)
            del self._open[key]  # this is the only reference, so the file is closed as well

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(_LEFT_S / 2, self._end_left)
            self._timer.daemon = True
            self._timer.start()

    def _end_left(self) -> None:
        with self._lock:
            self._timer = None
            before = time.monotonic() - _LEFT_S
            self._end([key for key, found in self._open.items() if not found.busy and found.asked < before])
            if self._open:
                self._look_later()
