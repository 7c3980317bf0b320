"""The process of a carrier: a fork of its supervisor where that is warm, else a Python started anew."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from ...folder import RunFolder
from ...processes import forking
from ...processes.rank_processes import PACKAGE_ROOT
from ...worker import boot
from ...worker.process_groups import kill_group

__all__ = ["BackendProcess", "fork", "spawn"]


class BackendProcess:
    """A child of this process that leads a group of its own. `calls`: what is written there it reads;
    `answers`: what it writes is read there."""

    def __init__(self, pid: int, calls: int, answers: int) -> None:
        self.pid, self.calls, self.answers = pid, calls, answers
        self._code: int | None = None

    def poll(self) -> int | None:
        """How it has ended, as subprocess tells that; None while it has not."""
        return self._wait(os.WNOHANG)

    def end(self) -> int:
        """End it, with all that it has started; returns how it has ended."""
        kill_group(self.pid)
        if self._code is None:
            # A fork that has just been made leads no group yet, and has started nothing.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        code = self._wait(0)
        assert code is not None
        os.close(self.calls)
        os.close(self.answers)
        return code

    def _wait(self, options: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


def spawn(folder: RunFolder) -> BackendProcess:
    """Raises OSError."""
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
    """None where this process is no fork of the template, or has threads, which a fork would lack. Not on
    macOS, whose own libraries, such as those that tell of proxies, work in no fork. Raises OSError."""
    if not forking.is_warm() or sys.platform != "linux" or forking.threads() > 1:
        return None
    with _Pipes() as pipes:

        def child() -> None:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for signum in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(signum, signal.SIG_DFL)  # the supervisor's own until here
            os.dup2(pipes.its_calls, 0)
            os.dup2(pipes.its_answers, 1)
            os.close(pipes.its_calls)
            os.close(pipes.its_answers)
            boot.reseed()
            from .server import main

            main([str(folder.path)])

        return pipes.kept(forking.fork(child, frozenset({pipes.its_calls, pipes.its_answers})))


class _Pipes:
    """The two pipes, until there is a process at their other ends; closed where none comes about."""

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
