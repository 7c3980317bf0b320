"""Origin of a cell or a call: its name in tracebacks, its notebook, the folder of its modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Origin", "current_shell", "origin_in", "origin_of_call"]


@dataclass(frozen=True)
class Origin:
    """Origin of code: its name in tracebacks, and the folder whose modules are sent with it."""

    label: str
    directory: Path
    notebook: str | None = None
    labels: Mapping[str, str] | None = None
    flags: int = 0
    """Compiler flags in effect, for example from an earlier `from __future__ import`."""
    argv: tuple[str, ...] = ()
    """A script and its arguments, for the ranks' `sys.argv`. Empty: the label alone."""
    file: str | None = None
    """The absolute path of a script, for the ranks' `__file__`."""
    module: str | None = None
    """The full name of a module that runs as `python -m` runs it, such as `pkg.__main__`."""
    line: str | None = None
    """The flags of a cell as they were typed."""
    purpose: Mapping[str, Any] | None = None
    """What a run of jupyter-dist's own does (`Job.purpose`)."""

    def for_capture(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "labels": self.labels,
            "directory": self.directory,
        }


def current_shell() -> Any:
    """Return the current IPython shell. None in a plain interpreter. Never imports IPython."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def origin_in(shell: Any, line: str | None = None) -> Origin:
    """Return the origin of the cell that runs now. `line`: see `Origin`."""
    notebook = _notebook(shell)
    directory = Path.cwd()
    if notebook is not None and os.path.isfile(notebook):
        directory = Path(notebook).absolute().parent
    numbers = getattr(shell.compile, "_filename_map", {})
    # IPython 9 increments its counter before it runs a cell. Earlier versions do so after it.
    number = shell.execution_count
    if number not in numbers.values():
        number = max(1, number - 1)
    labels = _Labels(numbers)
    return Origin(f"In[{number}]", directory, notebook, labels, shell.compile.flags, _arguments(), line=line)


def _arguments() -> tuple[str, ...]:
    """Return `sys.argv` if a cell has changed the arguments.

    Without a change, they are the kernel's own, such as `-f kernel.json`. A rank must not parse these.
    """
    arguments = sys.argv[1:]
    of_kernel = arguments == sys.orig_argv[len(sys.orig_argv) - len(arguments) :]
    return () if of_kernel else tuple(map(str, sys.argv))


class _Labels(Mapping[str, str]):
    """The labels of a notebook's cells by their file names. A long notebook has many, and a run needs few."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers

    def __getitem__(self, filename: str) -> str:
        return f"In[{self._numbers[filename]}]"

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def _notebook(shell: Any) -> str | None:
    """Return the notebook's path as the front-end provides it.

    Jupyter's server sets a variable (https://github.com/jupyter-server/jupyter_server/pull/1100). VS Code
    sets a name in the notebook (https://github.com/microsoft/vscode-jupyter/pull/8531).
    """
    for told in (shell.user_ns.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME")):
        if isinstance(told, str) and told:
            return told
    return None


def origin_of_call(fn: Callable[..., Any]) -> Origin:
    """Return the origin of a call of `fn` from Python: a notebook's cell, a script, or neither."""
    shell = current_shell()
    if shell is not None:
        return origin_in(shell)
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    directory = Path(file).absolute().parent if file else Path.cwd()
    own = file if getattr(getattr(fn, "func", fn), "__module__", None) == "__main__" else None
    return Origin(
        getattr(fn, "__name__", "call"),
        directory,
        argv=tuple(sys.argv) if file else (),
        file=own and os.path.abspath(own),
    )
