"""Whether the kernel's front-end shows widgets, and whether it can be heard while a cell runs.

A kernel is not told who shows its outputs. So a tiny widget is opened, which nobody displays: a
front-end that knows anywidget runs its script, and that says hello. One that does not (nbclient, a
console) leaves it alone. Colab and VS Code look at a widget only once it is displayed: they are known
by what they put into the kernel.
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
    """What is known of the front-ends of this kernel."""

    probe: Any = None
    said_hello = False
    while_busy = False


def probe() -> None:
    """Ask, once per kernel. Returns at once; never raises."""
    if _Known.probe is not None:
        return
    with contextlib.suppress(Exception):  # a convenience: without widgets there is text
        import anywidget

        _Known.probe = anywidget.AnyWidget(_esm=_SCRIPT)
        route(_Known.probe)
        _Known.probe.on_msg(lambda *_: heard())


def heard() -> None:
    """A front-end's message has come, in this very thread."""
    # Kernels with subshells take messages in other threads, also while a cell runs in the main one.
    _Known.while_busy = threading.current_thread() is not threading.main_thread()
    _Known.said_hello = True  # last: who sees it finds the other as well


def shows_widgets() -> bool:
    """Whether a widget in a display will be seen."""
    return _Known.said_hello or "google.colab" in sys.modules or _in_vscode()


def hears_while_busy() -> bool:
    """Whether a front-end's messages come in while a cell runs."""
    return _Known.while_busy


def _in_vscode() -> bool:
    from IPython.core.getipython import get_ipython

    return "__vsc_ipynb_file__" in getattr(get_ipython(), "user_ns", ())


def route(opened: Any) -> None:
    """Let a widget's messages come in by the subshell that the front-end chose for them.

    ipykernel 7.4 hands a comm's messages to the thread that used the comm last. That is the main
    thread, and Stop would wait for the end of the very cell that it is to stop.
    """
    if hasattr(opened.comm, "_reply_subshell_for"):
        opened.comm._reply_subshell_for = lambda data, chosen: chosen
