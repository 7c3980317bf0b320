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
from collections.abc import Callable
from typing import Any

from ..text.package_version import package_version

__all__ = [
    "heard",
    "hears_while_busy",
    "lacks_view",
    "probe",
    "route",
    "shows_widgets",
    "when_view_is_lacking",
]

# JupyterLab creates the subshell for a kernel's widgets with the first one. A hello that is sent before that
# arrives in the main thread, although later messages do not.
_SCRIPT = """
export default {
  initialize({ model }) {
    const hello = again => model.send({ kind: "hello", again, view: globalThis.jupyterDist?.version });
    model.on("msg:custom", () => hello(true));
    hello(false);
  },
};
"""


class _Known:
    """Known facts of this kernel's front-ends."""

    probe: Any = None
    said_hello = False
    while_busy = False
    with_view = False
    without_view = False
    on_lacking: Callable[[], None] | None = None


def probe() -> None:
    """Open the test widget, once per kernel. Does not wait, and never raises."""
    if _Known.probe is not None:
        return
    with contextlib.suppress(Exception):  # optional: without widgets jupyter-dist shows text
        import anywidget

        _Known.probe = anywidget.AnyWidget(_esm=_SCRIPT)
        route(_Known.probe)
        _Known.probe.on_msg(_on_hello)


def _on_hello(probe: Any, content: Any, buffers: object) -> None:
    hello = content if isinstance(content, dict) else {}
    if hello.get("view") == package_version():
        _Known.with_view = True
    else:
        _Known.without_view = True
    heard()
    if not _Known.while_busy and not hello.get("again"):
        probe.send({"kind": "again"})
    if lacks_view() and _Known.on_lacking is not None:
        _Known.on_lacking()


def lacks_view() -> bool:
    """Return whether a front-end needs the view's code from this kernel.

    A page with our labextension of the same version has the code already.
    """
    return _Known.without_view or not _Known.with_view or _says_no_hello()


def when_view_is_lacking(then: Callable[[], None]) -> None:
    """Call `then` each time a front-end without the view's code connects later."""
    _Known.on_lacking = then


def heard() -> None:
    """Note that a front-end's message has arrived in the current thread."""
    # Kernels with subshells handle messages in other threads, also while a cell runs in the main thread.
    _Known.while_busy = threading.current_thread() is not threading.main_thread()
    _Known.said_hello = True  # set last: a reader that sees it also sees `while_busy`


def shows_widgets() -> bool:
    """Return whether the front-end shows a widget in a display."""
    return _Known.said_hello or _says_no_hello()


def hears_while_busy() -> bool:
    """Return whether a front-end's messages arrive while a cell runs."""
    return _Known.while_busy


def _says_no_hello() -> bool:
    """Return whether a front-end is there that loads a widget only when the widget is displayed."""
    return "google.colab" in sys.modules or _in_vscode()


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
