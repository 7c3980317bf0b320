"""`display`, `update_display`, `clear_output` and the last expression of a cell, on a rank.

Each display is written twice. The log gets the text that IPython would print in a terminal, for readers of
text. The views of the run get its rich forms (media.py). An object that has only a text form is only printed.
Outside a run there is only the text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from . import media, png
from .mime_bundles import forms, is_rich, plain
from .widget_snapshots import is_widget

__all__ = [
    "DisplayHandle",
    "clear_output",
    "display",
    "publish",
    "renew_widgets",
    "show_result",
    "update_display",
]

cell_file: str | None = None
"""The name under which the cell was compiled. A display records the line of the cell that made it."""
_widgets: dict[Any, Any] = {}
"""Widgets by display id. Their content may change until the cell ends."""
_MOST_WIDGETS = 50
_said: dict[str, str] = {}
"""By display id: the text that was last printed to the log."""


class DisplayHandle:
    """The handle that `display(…, display_id=…)` returns. It replaces what the display shows."""

    def __init__(self, display_id: str | None = None) -> None:
        self.display_id = _new_id() if display_id is None else display_id

    def __repr__(self) -> str:
        return f"<DisplayHandle display_id={self.display_id}>"

    def display(self, obj: Any, **options: Any) -> None:
        """Show another object under the same id."""
        display(obj, display_id=self.display_id, **options)

    def update(self, obj: Any, **options: Any) -> None:
        """Replace all displays of this id by `obj`."""
        update_display(obj, display_id=self.display_id, **options)


def _new_id() -> str:
    return os.urandom(16).hex()


def display(
    *objs: Any,
    include: Any = None,
    exclude: Any = None,
    metadata: Mapping[str, Any] | None = None,
    transient: Mapping[str, Any] | None = None,
    display_id: str | bool | None = None,
    raw: bool = False,
    clear: bool = False,
    update: bool = False,
    **_: Any,
) -> DisplayHandle | None:
    """Show objects, as IPython's function of the same name does in a notebook."""
    name = _new_id() if display_id is True else display_id or (transient or {}).get("display_id")
    if clear:
        clear_output(wait=True)
    for obj in objs:
        if raw:
            publish(obj, metadata, display_id=name, update=update)
            continue
        chart = type(obj).__module__.startswith("plotly.")
        if not chart and _shows_itself(obj):
            continue
        data, own = forms(obj, include, exclude)
        # Keep the HTML for readers that cannot draw the data, but not a text of many lines.
        if chart:
            data["text/plain"] = f"<{type(obj).__name__} of plotly>"
        shown_as = name
        if is_widget(obj) and len(_widgets) < _MOST_WIDGETS:
            shown_as = name or _new_id()
            _widgets[shown_as] = obj
        publish(data, {**own, **(metadata or {})}, display_id=shown_as, update=update)
    return DisplayHandle(str(name)) if display_id else None


def _shows_itself(obj: Any) -> bool:
    shows = getattr(type(obj), "_ipython_display_", None)
    if shows is None:
        return False
    try:
        obj._ipython_display_()
    except NotImplementedError:
        return False
    except Exception as error:  # as in a notebook, the other forms are shown then
        print(
            f"{type(obj).__name__}._ipython_display_ raised {type(error).__name__}: {error}", file=sys.stderr
        )
        return False
    return True


def update_display(obj: Any, *, display_id: str, **options: Any) -> None:
    """Show `obj` in place of the objects that were shown under that id."""
    display(obj, display_id=display_id, **{**options, "update": True})


def clear_output(wait: bool = False) -> None:
    """Remove what this rank shows; with `wait`, when it shows something new. Its log stays unchanged."""
    writer = media.of_rank()
    if writer is not None:
        writer.clear(wait)


def publish(
    data: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
    *,
    display_id: Any = None,
    update: bool = False,
) -> None:
    """Show a MIME bundle."""
    name = None if display_id is None else str(display_id)
    writer = media.of_rank()
    at = 0 if writer is None else writer.output_size()
    kept = data if writer is None else _kept(data)
    _print(data, name, update, "" if writer is None else _tag(kept))
    if writer is None or (set(data) <= {"text/plain"} and name is None):
        return
    writer.display(
        kept,
        metadata,
        display_id=name,
        update=update,
        at=at,
        text_bytes=max(0, writer.output_size() - at),
        line=_line(),
    )


def _tag(data: Mapping[str, Any]) -> str:
    """Return a tag that distinguishes, in a log, pictures whose texts are equal.

    The text of a figure does not describe its content, and equal lines of ranks are shown as one line. The
    tag is empty if no other rank can show another picture.
    """
    text = data.get("text/plain", f"<{next(iter(data), 'nothing')}>")
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if alone or not isinstance(text, str) or not (text.startswith("<") and text.endswith(">")):
        return ""
    import hashlib  # imported late, because it loads OpenSSL and would slow the start of a rank

    whole = hashlib.sha256()
    rich = sorted((mime, value) for mime, value in data.items() if mime != "text/plain")
    for mime, value in [one for one in rich if media.is_data(one[0])] or rich:
        whole.update(mime.encode() + b"\0" + media.encoded(mime, value))
    return f" #{whole.hexdigest()[:6]}" if rich else ""


def _print(data: Mapping[str, Any], name: str | None, update: bool, tag: str) -> None:
    text = data.get("text/plain")
    told = f"<{next(iter(data), 'nothing')}>" if text is None else str(text)
    if update and _said.get(str(name)) == told:
        return  # a moving bar or a redrawn figure is printed once for readers of text
    if name is not None:
        _said[name] = told
    print(told + tag)


def _kept(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data without forms that no view can show.

    These are code, widgets whose models exist only in the rank's own process, and content that the MIME type
    does not allow. The log names such content of a text or of JSON.
    """
    left_out = ("application/javascript", "application/vnd.jupyter.widget-view+json")
    found = {}
    for mime, value in data.items():
        if mime in left_out or value is None:
            continue
        is_binary = media.form_of(mime) == "binary"
        try:
            content = media.encoded(mime, value)
        except (TypeError, ValueError) as error:
            if not is_binary:
                print(f"{mime} of a display is left out: {error}", file=sys.stderr)
            continue
        found[mime] = content if is_binary else value
    return found


def _line() -> int | None:
    """Return the line of the cell from which this was called."""
    frame = sys._getframe(1)
    while frame is not None:
        if cell_file is not None and frame.f_code.co_filename == cell_file:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def renew_widgets() -> None:
    """Show the final state of widgets at the end of a cell."""
    writer = media.of_rank()
    while _widgets and writer is not None:
        name, widget = _widgets.popitem()
        data, metadata = forms(widget)
        writer.display(_kept(data), metadata, display_id=str(name), update=True)


def show_result(value: Any) -> None:
    """Show the value of a cell's last expression, if it has a rich form.

    The log gets no text for it, because results are listed separately.
    """
    writer = media.of_rank()
    if writer is None or not (is_rich(value) or png.looks_like_picture(value)):
        return
    data, metadata = forms(value)
    kept = _kept(data)
    if not set(kept) - {"text/plain"} and png.looks_like_picture(value):
        kept["image/png"] = png.png(value)
    if set(kept) - {"text/plain"}:
        kept.setdefault("text/plain", plain(value))
        writer.display(kept, metadata, result=True)
