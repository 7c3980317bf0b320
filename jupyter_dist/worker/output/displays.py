"""`display`, `update_display`, `clear_output` and the last expression of a cell, on a rank.

Each display leaves two traces: in the log the text that a terminal's IPython would print, for whoever reads
text; and its rich forms, which views of the run show (media.py). What has no form but text is printed, and
that is all. Outside a run there is only the text.
"""

from __future__ import annotations

import contextlib
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
"""Under which name the cell was compiled: a display says from which of its lines it came."""
_widgets: dict[Any, Any] = {}
"""By display id: widgets, which may show something else when the cell ends."""
_MOST_WIDGETS = 50
_said: dict[str, str] = {}
"""By display id: the text that stands in the log last."""


class DisplayHandle:
    """What `display(…, display_id=…)` gives: shows something else in its place."""

    def __init__(self, display_id: str | None = None) -> None:
        self.display_id = _new_id() if display_id is None else display_id

    def __repr__(self) -> str:
        return f"<DisplayHandle display_id={self.display_id}>"

    def display(self, obj: Any, **options: Any) -> None:
        """Show another one under the same id."""
        display(obj, display_id=self.display_id, **options)

    def update(self, obj: Any, **options: Any) -> None:
        """Show `obj` where those of this id are."""
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
    """Show objects, as IPython's function of that name does in a notebook."""
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
        if chart:  # with the HTML that it has, for who cannot draw its data, and without a text of many lines
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
    return True


def update_display(obj: Any, *, display_id: str, **options: Any) -> None:
    """Show `obj` in place of what was shown under that id."""
    display(obj, display_id=display_id, **{**options, "update": True})


def clear_output(wait: bool = False) -> None:
    """Take away what this rank shows; with `wait` when something else comes. Its log stays what it is."""
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
    """What tells apart, in a log, two pictures whose texts are the same: the text of a figure says nothing of
    what is on it, and equal lines of ranks are shown as one. Empty where no other rank may show another."""
    text = data.get("text/plain", f"<{next(iter(data), 'nothing')}>")
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if alone or not isinstance(text, str) or not (text.startswith("<") and text.endswith(">")):
        return ""
    import hashlib  # which loads OpenSSL: not at a rank's start

    whole = hashlib.sha256()
    rich = sorted((mime, value) for mime, value in data.items() if mime != "text/plain")
    for mime, value in [one for one in rich if media.is_data(one[0])] or rich:
        whole.update(mime.encode() + b"\0" + media.encoded(mime, value))
    return f" #{whole.hexdigest()[:6]}" if rich else ""


def _print(data: Mapping[str, Any], name: str | None, update: bool, tag: str) -> None:
    text = data.get("text/plain")
    told = f"<{next(iter(data), 'nothing')}>" if text is None else str(text)
    if update and _said.get(str(name)) == told:
        return  # a bar that moves, a figure that is drawn anew: once is enough for who reads text
    if name is not None:
        _said[name] = told
    print(told + tag)


def _kept(data: Mapping[str, Any]) -> dict[str, Any]:
    """Without what no view can show: code, and widgets whose models are in the rank's own process."""
    left_out = ("application/javascript", "application/vnd.jupyter.widget-view+json")
    found = {}
    for mime, value in data.items():
        if mime not in left_out:
            with contextlib.suppress(TypeError, ValueError):
                found[mime] = media.encoded(mime, value) if media.form_of(mime) == "binary" else value
    return found


def _line() -> int | None:
    """Of the cell, from where this was called."""
    frame = sys._getframe(1)
    while frame is not None:
        if cell_file is not None and frame.f_code.co_filename == cell_file:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def renew_widgets() -> None:
    """At the end of a cell: show widgets as they are then."""
    writer = media.of_rank()
    while _widgets and writer is not None:
        name, widget = _widgets.popitem()
        data, metadata = forms(widget)
        writer.display(_kept(data), metadata, display_id=str(name), update=True)


def show_result(value: Any) -> None:
    """What a cell's last expression gave, where it has a rich form: a log needs no text for it, as results
    are listed by themselves."""
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
