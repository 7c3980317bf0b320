"""Updates of the digest of a run's metrics. With the digest, a view need not read all metrics."""

from __future__ import annotations

import contextlib
import time

from ..folder import RunFolder
from ..record.metrics.digest_file import DigestFile

__all__ = ["DigestUpdater"]

_WORTH_BYTES = 256 << 10
"""Below this size no digest is written: a view reads so few events in milliseconds."""
_TURN_S = 0.04
"""The longest update. The supervisor answers no stop request meanwhile."""
_REST = 2.0
"""Pause after an update, as a multiple of its CPU time. The ranks keep at least two thirds of the core."""
_LAST_S = 0.1
"""The longest update at the run's end. A view reads the remaining events itself."""
_STORE_EVERY_S = 2.0
_STORE_REST = 50.0
_MOST_NAMES = 64
"""A page shows at most this many charts. With more metrics, no digest is written."""


class DigestUpdater:
    """Writer of the digest of one attempt."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt
        self._kept: DigestFile | None = None
        self._next = self._store_next = 0.0
        self._stored = True

    def tick(self, ranks: int, event_bytes: int, *, last: bool = False) -> None:
        """Add some of the new events to the digest.

        `event_bytes`: the present size of all events, in bytes. `last`: no rank writes more events.
        """
        now = time.monotonic()
        if event_bytes < _WORTH_BYTES or (now < self._next and not last):
            return
        began = time.thread_time()
        if self._kept is None:
            self._kept = DigestFile(self._folder, self._attempt, ranks, _MOST_NAMES)
            self._kept.load()
        kept = self._kept
        if kept.digest.left_out:
            return
        kept.grow(ranks)
        if kept.read(_LAST_S if last else _TURN_S):
            self._stored = False
        self._next = now + _REST * (time.thread_time() - began)
        if not self._stored and not kept.digest.left_out and (last or now > self._store_next):
            # On a full disk the run continues without a digest. A view then needs about a second longer.
            began = time.thread_time()
            with contextlib.suppress(OSError):
                kept.store()
            self._stored = True
            self._store_next = now + max(_STORE_EVERY_S, _STORE_REST * (time.thread_time() - began))
