"""A pipe with which a thread wakes the driver from its `poll`."""

from __future__ import annotations

import contextlib
import os
import select
import threading

__all__ = ["WakePipe"]


class WakePipe:
    """Owner of the pipe's two descriptors from `open` to `close`. Else the methods do nothing."""

    def __init__(self) -> None:
        self._pipe: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Create the pipe if it does not exist."""
        if self._pipe is None:
            self._pipe = os.pipe()
            for descriptor in self._pipe:
                os.set_blocking(descriptor, False)

    def wake(self) -> None:
        """Wake the driver now, or at its next `poll`. Any thread may call this."""
        # The lock keeps `close` from reusing the descriptor's number for another file during the write.
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._pipe is not None:
                os.write(self._pipe[1], b"+")

    def clear(self) -> None:
        """Forget all earlier calls of `wake`."""
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self._pipe[0], 65536)

    def register(self, poll: select.poll) -> None:
        """Register the descriptor that `wake` makes readable."""
        if self._pipe is not None:
            poll.register(self._pipe[0], select.POLLIN)

    def close(self) -> None:
        """Close the pipe. Repeatable."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
            for descriptor in pipe or ():
                os.close(descriptor)
