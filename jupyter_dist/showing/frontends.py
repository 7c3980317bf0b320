"""Detection of the kernel's front-end: does it show widgets, and can it send messages while a cell runs?

A kernel does not receive the name of its front-end. So jupyter-dist opens a tiny widget that is never
displayed. A front-end that supports anywidget runs its script, and the script sends a message. Other
front-ends (nbclient, a console) ignore it. Colab and VS Code load a widget only when it is displayed. They
are detected by names that they put into the kernel.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any

__all__ = ["heard", "hears_while_busy", "probe", "route", "shows_widgets"]

_SCRIPT = """
export default { initialize({ model }) { model.send({ kind: "hello" }); } };
"""


class _Known:
    """Known facts of this kernel's front-ends."""

    probe: Any = None
    said_hello = False
    while_busy = False


def probe() -> None:
    """Open the test widget, once per kernel. Does not wait, and never raises."""
    if _Known.probe is not None:
        return
    with contextlib.suppress(Exception):  # optional: without widgets jupyter-dist shows text
        import anywidget

        _Known.probe = anywidget.AnyWidget(_esm=_SCRIPT)
        route(_Known.probe)
        _Known.probe.on_msg(lambda *_: heard())


def heard() -> None:
    """Note that a front-end's message has arrived in the current thread."""
    # Kernels with subshells handle messages in other threads, also while a cell runs in the main thread.
    _Known.while_busy = threading.current_thread() is not threading.main_thread()
    _Known.said_hello = True  # set last: a reader that sees it also sees `while_busy`


def shows_widgets() -> bool:
    """Return whether the front-end shows a widget in a display."""
    return _Known.said_hello or "google.colab" in sys.modules or _in_vscode()


def hears_while_busy() -> bool:
    """Return whether a front-end's messages arrive while a cell runs."""
    return _Known.while_busy


def _in_vscode() -> bool:
    from IPython.core.getipython import get_ipython

    return "__vsc_ipynb_file__" in getattr(get_ipython(), "user_ns", ())


def route(opened: Any) -> None:
    """Make a widget's messages arrive in the subshell that the front-end chose for them.

    ipykernel 7.4 passes a comm's messages to the thread that used the comm last. That is the main thread, so
    Stop would wait for the end of the cell that it must stop.
    """
    if hasattr(opened.comm, "_reply_subshell_for"):
        opened.comm._reply_subshell_for = lambda data, chosen: chosen
