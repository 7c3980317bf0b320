"""End a run's processes when its supervisor dies: a small process that waits for just that."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from ..backends.ranks import forking
from ..backends.ranks.leftovers import end_leftovers
from ..worker.groups import guard_groups

__all__ = ["Guard"]


class Guard:
    """Holds one end of a pipe; when the other end closes without a word, it kills the groups it watches
    and, unless ranks are to outlive the supervisor, whatever else carries the run's id in its environment."""

    def __init__(self, run_id: str, *, outlives: bool = False) -> None:
        self._run_id = None if outlives else run_id
        self._watched: set[int] = set()
        self._pid: int | None = None

    def _start(self) -> int:
        read, self._write = os.pipe()
        run_id = self._run_id
        self._pid = forking.fork(lambda: _wait(read, run_id), frozenset({read}))
        os.close(read)
        return self._pid

    def watch(self, pids: Iterable[int]) -> None:
        """Say which process groups are the run's now. Also replaces a guard that was killed.

        The first call starts the guard: after the ranks, whom a fork before them would keep waiting.
        """
        current = set(pids)
        pid = self._start() if self._pid is None else self._pid
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                os.close(self._write)
                self._start()
                self._watched = set()
        if current != self._watched:
            self._watched = current
            self._say(" ".join(map(str, sorted(current))) + "\n")

    def release(self) -> None:
        """The run has ended in order; the guard ends without doing anything."""
        if self._pid is None:
            return
        self._say("done\n")
        os.close(self._write)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def _say(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, text.encode())


def _wait(read: int, run_id: str | None) -> None:
    if guard_groups(read) and run_id is not None:
        end_leftovers(run_id)
    os._exit(0)
