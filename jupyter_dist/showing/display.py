"""Output of a run for front-ends: its id for our own renderers, a widget, HTML and text."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..folder import RunFolder
from ..record import reader
from ..text.safe import clean_lines, preformatted
from . import frontends

__all__ = [
    "RUN_MIME",
    "bundle",
    "cell_id",
    "command",
    "end_widget",
    "in_kernel",
    "kernel_ends",
    "send_view_code",
    "static_html",
    "tell",
    "widget_view",
]


RUN_MIME = "application/x-jupyter-dist-run+json"
"""MIME type of a run's id for our renderers.

Data: `{"run": id, "root": folder of all runs, "ended": whether the output is final}`. A renderer reads the
run itself. If "ended" is false and the run has ended, the renderer must still write the end into the output.
"""


_RESTART_FOLLOWS_S = 0.5
_LOOK_S = 0.01


def in_kernel() -> bool:
    """Return whether this process is an IPython kernel, whose front-end can update a display in place."""
    return getattr(_shell(), "kernel", None) is not None


def command() -> str:
    """Return how a jupyter-dist command begins here: a magic in IPython, else a shell command."""
    return "jupyter dist" if _shell() is None else "%dist"


def kernel_ends() -> bool:
    """Return whether an interrupt belongs to this kernel's restart or shutdown. A run outlives both.

    Jupyter interrupts a kernel before it requests its end. The request arrives on another thread, so this
    function waits for it for half a second.
    """
    deadline = time.monotonic() + _RESTART_FOLLOWS_S
    while in_kernel() and time.monotonic() < deadline:
        if getattr(_shell(), "exit_now", False):
            return True
        time.sleep(_LOOK_S)
    return False


def cell_id() -> str | None:
    """Return the id of the request that this kernel executes now. None outside of kernels."""
    try:
        return str(_shell().get_parent()["header"]["msg_id"])
    except (AttributeError, KeyError, TypeError):
        return None


def _shell() -> Any:
    # If IPython is not imported, there is no shell. Importing it costs half a second.
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


def bundle(
    folder: RunFolder, *, text: str, html: str | None = None, view: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a MIME bundle. A front-end shows the richest part that it supports."""
    about = {"run": folder.id, "root": str(folder.path.parent), "ended": reader.status(folder).state.ended}
    found: dict[str, Any] = {RUN_MIME: about, **(view or {})}
    if html is not None:
        found["text/html"] = html
    found["text/plain"] = text
    return found


def widget_view(folder: RunFolder, *, blocking: bool = False) -> dict[str, Any]:
    """Return the widget's part of a bundle. Empty if no front-end has reported that it shows widgets.

    `blocking`: a cell waits for the run, and calls `end_widget` at the run's end.
    """
    if not frontends.shows_widgets():
        return {}
    try:
        from . import widget
    except ImportError:
        return {}
    return widget.view(folder, blocking=blocking)


def end_widget(folder: RunFolder) -> None:
    """Store in the run's widget, if there is one, what a saved notebook shows of the run."""
    module = sys.modules.get("jupyter_dist.showing.widget")
    if module is not None:
        module.end(folder)


def send_view_code() -> None:
    """Send the view's code for saved notebooks, if there is a widget. Other messages wait meanwhile."""
    module = sys.modules.get("jupyter_dist.showing.widget")
    if module is not None:
        module.send_code()


def static_html(summary: str, log: str) -> str:
    """Return HTML with the summary and the last log lines below it. The summary has the cause of a failure.

    A front-end that shows HTML shows it instead of our text.
    """
    text = clean_lines(log).strip("\n")
    if not text:
        return summary
    return summary + preformatted(text, "margin:0.5em 0 0;white-space:pre-wrap")


def tell(text: str) -> None:
    """Print one line for the user.

    Notebooks colour stderr red like an error, so a kernel prints to stdout.
    """
    print(text, file=sys.stdout if in_kernel() else sys.stderr)
