"""What a session's rank follows of the notebook's process: environment variables, the working directory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping

__all__ = ["NotebookProcess"]


class NotebookProcess:
    """The notebook's process, as the last cell has found it.

    What a cell of the session changes stays changed, until the notebook changes it, too.
    """

    def __init__(self) -> None:
        self._environ: dict[str, str | None] = {}
        self._cwd = ""
        with contextlib.suppress(OSError):  # somebody has removed it
            self._cwd = os.getcwd()

    def follow(self, environ: Mapping[str, tuple[str, str | None]], cwd: str | None) -> None:
        """Take over what has changed there.

        `environ`: the notebook's variables, each with the value at the session's start. The rank may have had
        another value since its own start. `cwd`: None if it is a directory of another machine.
        """
        for name, (value, at_start) in environ.items():
            if self._environ.setdefault(name, at_start) != value:
                self._environ[name] = os.environ[name] = value
                time.tzset()
        if cwd is not None and cwd != self._cwd:
            self._cwd = cwd
            with contextlib.suppress(OSError):  # code that opens a file there reports it
                os.chdir(cwd)
