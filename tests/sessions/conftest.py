"""A notebook in this process whose cells go to sessions, and the end of every session with its test."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.errors import DistError
from jupyter_dist.launch import session_link
from jupyter_dist.record.sessions import list_sessions
from jupyter_dist.showing.run import Run
from jupyter_dist.worker.process_identity import start_ticks
from tests.rigs.notebook_shell import notebook_shell


class Notebook:
    """Cells of a notebook. Their ranks start cold, except in modules that say `usefixtures("warm")`."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.printed = ""
        """What the last cell printed in the notebook."""

    def plain(self, code: str) -> Any:
        """Run a cell in the notebook itself."""
        return self._run(code).result

    def cell(self, code: str, line: str = "--session") -> Run:
        """Run a cell on the ranks. It must succeed."""
        found = self._run(f"%%distribute {line}\n{code}").result
        assert isinstance(found, Run)
        return found

    def fails(self, code: str, line: str = "--session") -> Any:
        """Run a cell on the ranks that must fail, and return the error."""
        with capture_output() as captured:
            done = self.shell.run_cell(f"%%distribute {line}\n{code}")
        self.printed = captured.stdout + captured.stderr
        error = done.error_in_exec or done.error_before_exec
        assert error is not None, captured.stdout
        return error

    def results(self, code: str, line: str = "--session") -> list[Any]:
        return list(self.cell(code, line).results)

    def _run(self, code: str) -> Any:
        with capture_output() as captured:
            done = self.shell.run_cell(code)
        self.printed = captured.stdout + captured.stderr
        if done.error_in_exec is not None:
            raise done.error_in_exec
        done.raise_error()
        return done


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Notebook]:
    with notebook_shell(monkeypatch, tmp_path) as shell:
        yield Notebook(shell)


@pytest.fixture(autouse=True)
def sessions_end(own_folders: Path) -> Iterator[None]:
    """End the sessions of a test: they would outlive it on purpose."""
    yield
    for session in list_sessions():
        with contextlib.suppress(DistError):
            session_link.close(session)
        about = session.about["supervisor"]

        def is_gone(pid: int = about["pid"], ticks: int = about["start_ticks"]) -> bool:
            if start_ticks(pid) != ticks:
                return True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return False

        if session.is_here:
            wait_until(is_gone, "the end of a session's supervisor")
