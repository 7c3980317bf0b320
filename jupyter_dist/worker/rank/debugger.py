"""Say what to do where a cell asks for a debugger: a rank has nobody who could type.

The debugger alone would end at once with a bare BdbQuit, since the standard input of a rank is empty.
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
    """Have `breakpoint()`, `pdb.set_trace()` and those of debuggers made from `pdb.Pdb` raise RuntimeError.

    One that is given a stream of its own, as those that are reached over the network, stays as it is.
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
    except (AttributeError, OSError, ValueError):  # no file
        return False
