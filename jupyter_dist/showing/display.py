"""What a run gives to front-ends: its id for our own renderers, a widget, HTML and text."""

from __future__ import annotations

import sys
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
    "kernel_is_ending",
    "static_html",
    "tell",
    "widget_view",
]


RUN_MIME = "application/x-jupyter-dist-run+json"
"""Data: `{"run": id, "root": folder of all runs, "ended": whether the output stays as it is}`. Whoever
renders it reads the run itself; of an ended run with "ended" false the end is still to be written."""


def in_kernel() -> bool:
    """Whether this process is an IPython kernel, whose front-end can update a display in place."""
    return getattr(_shell(), "kernel", None) is not None


def command() -> str:
    """How a command of ours begins where this process is used."""
    return "jupyter dist" if _shell() is None else "%dist"


def kernel_is_ending() -> bool:
    """Whether this kernel was asked to shut down or restart; its main thread may not have heard of it."""
    return in_kernel() and bool(getattr(_shell(), "exit_now", False))


def cell_id() -> str | None:
    """The request that this kernel executes now; None outside of kernels."""
    try:
        return str(_shell().get_parent()["header"]["msg_id"])
    except (AttributeError, KeyError, TypeError):
        return None


def _shell() -> Any:
    # Without IPython imported there is no shell, and importing it costs half a second.
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


def bundle(
    folder: RunFolder, *, text: str, html: str | None = None, view: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A MIME bundle: one of its parts is shown, the richest that the front-end knows."""
    about = {"run": folder.id, "root": str(folder.path.parent), "ended": reader.status(folder).state.ended}
    found: dict[str, Any] = {RUN_MIME: about, **(view or {})}
    if html is not None:
        found["text/html"] = html
    found["text/plain"] = text
    return found


def widget_view(folder: RunFolder, *, blocking: bool = False) -> dict[str, Any]:
    """The widget's part of a bundle; empty where no front-end has said that it shows widgets.

    `blocking`: a cell waits for the run, and `end_widget` comes at its end.
    """
    if not frontends.shows_widgets():
        return {}
    try:
        from . import widget
    except ImportError:
        return {}
    return widget.view(folder, blocking=blocking)


def end_widget(folder: RunFolder) -> None:
    """Let the run's widget, where there is one, keep what a saved notebook shows of it."""
    module = sys.modules.get("jupyter_dist.showing.widget")
    if module is not None:
        module.end(folder)


def static_html(summary: str, log: str) -> str:
    """The last lines below the summary, which has the cause of a failure: for a front-end that shows HTML in
    place of our text."""
    text = clean_lines(log).strip("\n")
    if not text:
        return summary
    return summary + preformatted(text, "margin:0.5em 0 0;white-space:pre-wrap")


def tell(text: str) -> None:
    """One line for the user. Notebooks paint what comes on stderr red, as errors, which it is not."""
    print(text, file=sys.stdout if in_kernel() else sys.stderr)
