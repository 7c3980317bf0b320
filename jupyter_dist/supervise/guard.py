"""End a run's processes when its supervisor dies: a small process that waits for just that.

The guard exists before the first process of the run. The template keeps one in store (`prepare`), for a fork
of a process that has imported torch takes longer than anything else on the way to a rank's first line; a
supervisor that was started from scratch forks its own. Neither has a thread at that time.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable

from ..processes import forking
from ..processes.leftovers import end_leftovers
from ..processes.rank_processes import PACKAGE_ROOT
from ..worker.process_groups import kill_group, last_words

__all__ = ["Guard", "prepare"]

_DONE, _NOTHING = "done", "-"
_LOOKS, _BETWEEN_S = 2, 0.2
"""A process that was just being started has no environment to be known by at the first look."""


def prepare() -> int:
    """Fork a guard that guards nothing yet; returns the end of its pipe to give to `Guard`. It ends when the
    last copy of that is closed. Not in a process with threads."""
    read, write = os.pipe()
    forking.fork(lambda: _wait(read), frozenset({read}))
    os.close(read)
    return write


class Guard:
    """Holds one end of a pipe, and the guard the other one.

    When ours closes without a word, the guard kills the groups that it was told of last and, unless ranks are
    to outlive the supervisor, whatever else carries the run's id.
    """

    def __init__(self, run_id: str, *, outlives: bool = False, prepared: int | None = None) -> None:
        self._run_id = _NOTHING if outlives else run_id
        self._watched: set[int] = set()
        self._write = prepare() if prepared is None else prepared
        self._tell()

    def watch(self, pids: Iterable[int]) -> None:
        """Say which process groups are the run's now. Also replaces a guard that was killed."""
        current = set(pids)
        if self._is_gone():
            os.close(self._write)
            self._write = prepare() if forking.threads() == 1 else _start()
        elif current == self._watched:
            return
        self._watched = current
        self._tell()

    def release(self) -> None:
        """The run has ended in order, or goes on without us; the guard ends without doing anything."""
        self._say(_DONE)
        os.close(self._write)

    def _is_gone(self) -> bool:
        # Nobody reads from the pipe. It need not be our child, whom we could wait for.
        poll = select.poll()
        poll.register(self._write, 0)
        return bool(poll.poll(0))

    def _tell(self) -> None:
        self._say(" ".join([self._run_id, *map(str, sorted(self._watched))]))

    def _say(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, text.encode() + b"\n")


def _start() -> int:
    """A guard that is no fork."""
    read, write = os.pipe()
    subprocess.Popen(
        [sys.executable, "-m", "jupyter_dist.supervise.guard"],
        cwd=PACKAGE_ROOT,
        stdin=read,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ).returncode = 0  # nobody waits for it
    os.close(read)
    return write


def _wait(read: int) -> None:
    last = last_words(read)
    if last is not None and last != _DONE:
        run_id, *groups = last.split()
        for group in groups:
            kill_group(int(group))
        for look in range(_LOOKS if run_id != _NOTHING else 0):
            time.sleep(_BETWEEN_S if look else 0)
            end_leftovers(run_id)
    os._exit(0)


if __name__ == "__main__":
    _wait(0)
