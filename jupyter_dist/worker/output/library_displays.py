"""IPython's display functions and matplotlib's `show` on a rank, with the same effect as in a notebook.

Without a shell, IPython's functions only print. This module replaces their code rather than their names. So
every import of them, by the user or by a library, uses the replacement. `plt.show()` shows the open figures
and closes them. Figures that are open when the cell ends are shown then, as in a notebook.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

from ..import_hooks import AfterImport

__all__ = ["close_figures", "install"]

_IPYTHONS, _PYPLOT = "IPython.core.display_functions", "matplotlib.pyplot"


def install() -> None:
    """Replace the functions, now or when the libraries are imported. Imports neither library."""
    # A figure of plotly then returns its data, which JupyterLab draws, and opens no browser.
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype")
    if _finder not in sys.meta_path:  # each cell of a session calls this
        _finder.install()


def _patch(name: str, module: ModuleType) -> None:
    # An error here must not end the rank. Without the replacement, the log has the text.
    with contextlib.suppress(Exception):
        if name == _IPYTHONS:
            for function, ours in _IN_PLACE.items():
                _replace(getattr(module, function, None), ours)
        else:
            _patch_pyplot(module)


_finder = AfterImport((_IPYTHONS, _PYPLOT), _patch)


def _replace(theirs: Any, ours: Any) -> None:
    if isinstance(theirs, FunctionType) and not theirs.__code__.co_freevars:
        theirs.__code__ = ours.__code__
        theirs.__defaults__, theirs.__kwdefaults__ = ours.__defaults__, ours.__kwdefaults__


# The code runs with the globals of IPython, so each function imports what it needs by absolute names.


def _display(*objs, **options):  # type: ignore[no-untyped-def]
    from jupyter_dist.worker.output import displays

    return displays.display(*objs, **options)


def _update_display(obj, *, display_id, **options):  # type: ignore[no-untyped-def]
    from jupyter_dist.worker.output import displays

    displays.update_display(obj, display_id=display_id, **options)


def _publish_display_data(data, metadata=None, *_, transient=None, **options):  # type: ignore[no-untyped-def]
    from jupyter_dist.worker.output import displays

    displays.display(data, metadata=metadata, raw=True, transient=transient, **options)


def _clear_output(wait=False):  # type: ignore[no-untyped-def]
    from jupyter_dist.worker.output import displays

    displays.clear_output(wait)


_IN_PLACE: dict[str, Any] = {
    "display": _display,
    "update_display": _update_display,
    "publish_display_data": _publish_display_data,
    "clear_output": _clear_output,
}


def _patch_pyplot(pyplot: Any) -> None:
    original = pyplot.show
    original_of_one = pyplot.Figure.show

    def show(*args: Any, **kwargs: Any) -> Any:
        figures = _open_figures(pyplot)
        if _have_windows(figures):
            return original(*args, **kwargs)
        _show_all(pyplot, figures)
        return None

    def show_one(self: Any, warn: bool = True) -> Any:
        if _have_windows([self]):
            return original_of_one(self, warn)
        from . import displays

        displays.display(self)
        return None

    show.__doc__, show_one.__doc__ = original.__doc__, original_of_one.__doc__
    pyplot.show, pyplot.Figure.show = show, show_one


def _have_windows(figures: Iterable[Any]) -> bool:
    """Return whether figures have windows of their own, as on a machine with a screen."""
    return any(figure.canvas.required_interactive_framework for figure in figures)


def _open_figures(pyplot: Any) -> list[Any]:
    return [pyplot.figure(number) for number in pyplot.get_fignums()]


def _show_all(pyplot: Any, figures: Iterable[Any]) -> None:
    from . import displays

    for figure in figures:
        displays.display(figure)
    pyplot.close("all")


def close_figures(result: object = None) -> None:
    """Show the open figures at the end of a cell, except for a figure that is its result."""
    pyplot: Any = sys.modules.get(_PYPLOT)
    if pyplot is None:
        return
    with contextlib.suppress(Exception):  # the cell has already succeeded
        figures = _open_figures(pyplot)
        if not _have_windows(figures):
            _show_all(pyplot, [figure for figure in figures if figure is not result])
