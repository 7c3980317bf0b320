"""What a session's rank follows of the notebook's process: environment variables, the working directory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping

__all__ = ["NotebookProcess"]


class NotebookProcess:
    """The notebook's process, as the last cell has found it. The rank has inherited what it has at first.

    What a cell of the session changes stays changed, until the notebook changes it, too.
    """

    def __init__(self) -> None:
        self._environ, self._cwd = dict(os.environ), ""
        with contextlib.suppress(OSError):  # somebody has removed it
            self._cwd = os.getcwd()

    def follow(self, environ: Mapping[str, str], cwd: str | None) -> None:
        """Take over what has changed there. `cwd`: None if it is a directory of another machine."""
        new = {name: value for name, value in environ.items() if self._environ.get(name) != value}
        if new:
            self._environ |= new
            os.environ.update(new)
            time.tzset()
        if cwd is not None and cwd != self._cwd:
            self._cwd = cwd
            with contextlib.suppress(OSError):  # code that opens a file there reports it
                os.chdir(cwd)
