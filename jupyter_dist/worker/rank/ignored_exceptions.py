"""Hear a request to end also where Python ignores exceptions.

A rank is asked to end by a signal, whose handler raises. In a `__del__`, or a callback of a weak reference or
of C code, Python says "Exception ignored in …" with the frames of the handler, and goes on: the rank would
hear no more of it, and be killed in the end without having cleaned up. So it is asked again, and nothing is
said.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

from ..boot import Terminated

__all__ = ["install"]

_AGAIN_S = 0.05


def install() -> None:
    """Look at what Python ignores from now on; repeatable."""
    if getattr(sys.unraisablehook, "__module__", None) != __name__:
        before = sys.unraisablehook

        def hook(ignored: Any) -> None:
            if issubclass(ignored.exc_type, Terminated):
                _ask_again()
            else:
                before(ignored)

        sys.unraisablehook = hook


def _ask_again() -> None:
    """A moment later: now it would be ignored as well, and be said to have been."""
    main = threading.main_thread().ident or 0
    again = threading.Timer(_AGAIN_S, signal.pthread_kill, (main, signal.SIGTERM))
    again.daemon = True
    again.start()
