"""An error for a cell that starts a debugger, because nobody can type into a rank.

The standard input of a rank is empty. Without this error the debugger would end at once with a bare BdbQuit.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from ..patching import wrap

__all__ = ["patch"]

_INSTEAD = (
    "A rank has no input, so a debugger cannot run on it. Run the cell without "
    "%%distribute to debug it in the notebook. print() and `%dist stacks` show where the "
    "ranks are. With `--env PYTHONBREAKPOINT=0` the ranks ignore breakpoint()."
)


def patch(pdb: ModuleType) -> None:
    """Make `breakpoint()`, `pdb.set_trace()` and debuggers derived from `pdb.Pdb` raise RuntimeError.

    A debugger with a stream of its own stays unchanged, for example one that is used over the network.
    """
    wrap(pdb.Pdb, "set_trace", _refusing)


def _refusing(original: Any) -> Any:
    def set_trace(self: Any, frame: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _is_empty(self.stdin):
            raise RuntimeError(_INSTEAD)
        return original(self, frame or sys._getframe(1), *args, **kwargs)

    return set_trace


def _is_empty(stream: Any) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(os.devnull))
    except (AttributeError, OSError, ValueError):  # the stream is not a file
        return False
