"""The operating system process of a backend: a fork of a warm supervisor, or a new Python process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from ...folder import RunFolder
from ...processes import forking
from ...processes.rank_processes import PACKAGE_ROOT
from ...worker import random_state
from ...worker.process_groups import kill_group, reap, reap_killed

__all__ = ["BackendProcess", "fork", "spawn"]


class BackendProcess:
    """A child of this process that leads a process group of its own.

    This process writes to the descriptor `calls` and reads from the descriptor `answers`.
    """

    def __init__(self, pid: int, calls: int, answers: int) -> None:
        self.pid, self.calls, self.answers = pid, calls, answers
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit status as in `subprocess`; None while the process runs.

        When the process has ended, its children are killed.
        """
        if self._code is None and (reaped := reap(self.pid)) is not None:
            self._code = reaped.returncode
        return self._code

    def end(self) -> int:
        """Kill the process and its children. Returns the exit status as in `subprocess`. Blocks up to 2 s."""
        if self._code is None:
            kill_group(self.pid)
            # A new fork may not lead its group yet. It has no children then.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            status = reap_killed(self.pid)
            self._code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
        os.close(self.calls)
        os.close(self.answers)
        return self._code


def spawn(folder: RunFolder) -> BackendProcess:
    """Start the process as a new Python. Raises OSError."""
    with _Pipes() as pipes:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_dist.supervise.backend_process.server", str(folder.path)],
            cwd=PACKAGE_ROOT,
            stdin=pipes.its_calls,
            stdout=pipes.its_answers,
            start_new_session=True,
        )
        process.returncode = 0  # waited for by its pid
        return pipes.kept(process.pid)


def fork(folder: RunFolder) -> BackendProcess | None:
    """Start the process as a fork. Raises OSError.

    Returns None if this process is no fork of the template, or has threads: a fork would lack them.
    Returns None on macOS: its system libraries, such as the proxy look-up, do not work in a fork.
    """
    if not forking.is_warm() or sys.platform != "linux" or forking.threads() > 1:
        return None
    with _Pipes() as pipes:

        def child() -> None:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for signum in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(signum, signal.SIG_DFL)  # the handlers are the supervisor's
            os.dup2(pipes.its_calls, 0)
            os.dup2(pipes.its_answers, 1)
            os.close(pipes.its_calls)
            os.close(pipes.its_answers)
            random_state.reseed()
            from .server import main

            main([str(folder.path)])

        return pipes.kept(forking.fork(child, frozenset({pipes.its_calls, pipes.its_answers})))


class _Pipes:
    """The two pipes of a process that is about to start. If the start fails, all ends are closed."""

    def __enter__(self) -> _Pipes:
        self.its_calls, self._calls = os.pipe()
        self._answers, self.its_answers = os.pipe()
        self._mine = [self._calls, self._answers]
        return self

    def kept(self, pid: int) -> BackendProcess:
        self._mine = []
        return BackendProcess(pid, self._calls, self._answers)

    def __exit__(self, *_: object) -> None:
        for descriptor in (self.its_calls, self.its_answers, *self._mine):
            os.close(descriptor)
