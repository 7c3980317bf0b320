"""Repetition of a request to end, or of an interrupt, that Python has ignored.

A signal asks a rank to end, and its handler raises. In a `__del__`, or in a callback of a weak reference, of
`os.fork` or of C code, Python ignores the exception. Python prints "Exception ignored in …" with the frames
of the handler, and continues. The rank would then miss the request, and would finally be killed without
cleaning up. So this module sends the signal again, and prints nothing.
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
    """Watch the exceptions that Python ignores from now on. Repeatable."""
    if getattr(sys.unraisablehook, "__module__", None) != __name__:
        before = sys.unraisablehook

        def hook(ignored: Any) -> None:
            if issubclass(ignored.exc_type, Terminated):
                _ask_again(signal.SIGTERM)
            elif issubclass(ignored.exc_type, KeyboardInterrupt):
                _ask_again(signal.SIGINT)
            else:
                before(ignored)

        sys.unraisablehook = hook


def _ask_again(signum: signal.Signals) -> None:
    """Send the signal again a moment later. Now, Python would ignore and report it as well."""
    main = threading.main_thread().ident or 0
    again = threading.Timer(_AGAIN_S, signal.pthread_kill, (main, signum))
    again.daemon = True
    again.start()
