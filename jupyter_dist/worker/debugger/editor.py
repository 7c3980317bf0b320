"""debugpy on a rank, for users who attach an editor (--debugpy). It listens on the loopback interface."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..output import events

__all__ = ["listen"]

_LOOPBACK = "127.0.0.1"
_LOOK_S = 0.2
_port = 0
"""Where this process listens; 0 if it does not."""
_QUIET = "PYDEVD_DISABLE_FILE_VALIDATION"
"""The variable without which debugpy prints four lines about Python's frozen modules."""


def listen(rank: str) -> None:
    """Start debugpy on a free port and note where. In a later cell of a session, only note where.

    Raises RuntimeError if debugpy is not installed.
    """
    global _port
    os.environ.setdefault(_QUIET, "1")
    try:
        import debugpy
    except ImportError:
        raise RuntimeError(
            f"--debugpy needs debugpy, and the Python of rank {rank} has none. Install it there with "
            f"`{sys.executable} -m pip install debugpy`."
        ) from None
    if not _port:
        _, _port = debugpy.listen((_LOOPBACK, 0))
        of_editor, sys.breakpointhook = sys.breakpointhook, sys.__breakpointhook__  # nobody is attached yet
        choose = threading.Thread(
            target=_choose, args=(debugpy, of_editor), name="jupyter-dist-debugpy", daemon=True
        )
        choose.start()
    writer = events.writer()
    text = f"rank {rank}: debugpy listens on {_LOOPBACK}:{_port} of {socket.gethostname()}"
    if writer is not None:
        writer.note(text)


def _choose(debugpy: ModuleType, of_editor: Callable[..., Any]) -> None:
    """Let `breakpoint()` stop in the editor while one is attached, and in pdb otherwise.

    A function that decides at the breakpoint would be the frame that the editor shows.
    """
    of_pdb = sys.__breakpointhook__
    while True:
        hook = of_editor if debugpy.is_client_connected() else of_pdb
        if sys.breakpointhook in (of_editor, of_pdb):
            sys.breakpointhook = hook
        time.sleep(_LOOK_S)
