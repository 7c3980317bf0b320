"""Guard of a run: a small process that kills the run's processes when its supervisor dies.

The guard starts before the first process of the run. The template forks a guard in advance (`prepare`).
A fork of a process that has imported torch is the slowest step before a rank's first line.
A supervisor that was started cold forks its own guard. Neither process has threads at that time.
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
from ..worker.line_file import write_all
from ..worker.process_groups import guard_groups

__all__ = ["Guard", "prepare"]

_DONE, _NOTHING = "done", "-"
_LOOKS, _BETWEEN_S = 2, 0.2
"""The guard searches twice: a process that is just starting shows no environment yet."""


def prepare() -> int:
    """Fork a guard that guards nothing yet. Returns the end of its pipe, an argument of `Guard`.

    The guard ends when the last copy of this pipe end is closed. Do not call this in a process with threads.
    """
    read, write = os.pipe()
    forking.fork(lambda: _wait(read), frozenset({read}))
    os.close(read)
    return write


class Guard:
    """The supervisor's end of a pipe to the guard.

    If this end closes without a farewell, the guard kills the process groups of the latest `watch`.
    Unless ranks outlive the supervisor, the guard also kills all other processes with the run's id.
    """

    def __init__(self, run_id: str, *, outlives: bool = False, prepared: int | None = None) -> None:
        self._run_id = _NOTHING if outlives else run_id
        self._watched: set[int] = set()
        self._write = prepare() if prepared is None else prepared
        self._tell()

    def watch(self, pids: Iterable[int]) -> None:
        """Send the guard the run's present process groups. If the guard was killed, start another one."""
        current = set(pids)
        if self._is_gone():
            os.close(self._write)
            self._write = prepare() if forking.threads() == 1 else _start()
        elif current == self._watched:
            return
        self._watched = current
        self._tell()

    def release(self) -> None:
        """End the guard without killing anything: the run has ended, or continues without a supervisor."""
        self._say(_DONE)
        os.close(self._write)

    def _is_gone(self) -> bool:
        # The pipe has no reader if the guard is dead. `waitpid` is no help: the template may be the parent.
        poll = select.poll()
        poll.register(self._write, 0)
        return bool(poll.poll(0))

    def _tell(self) -> None:
        self._say(" ".join([self._run_id, *map(str, sorted(self._watched))]))

    def _say(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            write_all(self._write, text.encode() + b"\n")


def _start() -> int:
    """Start a guard as a new Python process, because a process with threads must not fork."""
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
    last = guard_groups(read)
    if last is not None and last != _DONE:
        run_id = last.split()[0]
        for look in range(_LOOKS if run_id != _NOTHING else 0):
            time.sleep(_BETWEEN_S if look else 0)
            end_leftovers(run_id)
    os._exit(0)


if __name__ == "__main__":
    _wait(0)
