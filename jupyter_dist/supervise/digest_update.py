"""Keep the digest of the ranks' metrics while they come, so that who shows the run need not read them all."""

from __future__ import annotations

import contextlib
import time

from ..folder import RunFolder
from ..record.metrics.digest_file import DigestFile

__all__ = ["DigestUpdater"]

_WORTH_BYTES = 256 << 10
"""What is read in a few milliseconds needs no digest."""
_TURN_S = 0.04
"""A stop waits that long for its answer at most."""
_REST = 2.0
"""A third of a core at most, however much comes: the ranks want it."""
_LAST_S = 0.1
"""What is left at the run's end then is read by who shows it."""
_STORE_EVERY_S = 2.0
_STORE_REST = 50.0
_MOST_NAMES = 64
"""Of so many metrics a page shows a chart at most. With more no digest is kept."""


class DigestUpdater:
    """For one attempt."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt
        self._kept: DigestFile | None = None
        self._next = self._store_next = 0.0
        self._stored = True

    def tick(self, ranks: int, event_bytes: int, *, last: bool = False) -> None:
        """Take in some of what has come. `event_bytes`: how much there is by now. `last`: nothing follows."""
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
            # A full disk costs those who show the run a second, not the run.
            began = time.thread_time()
            with contextlib.suppress(OSError):
                kept.store()
            self._stored = True
            self._store_next = now + max(_STORE_EVERY_S, _STORE_REST * (time.thread_time() - began))
