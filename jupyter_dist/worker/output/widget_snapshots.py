"""Widgets of ipywidgets as still content.

On a rank nobody can move them, and their models end with the rank.
"""

from __future__ import annotations

import html
import sys
from typing import Any

__all__ = ["is_widget", "still"]

_MOST_CHILDREN = 100
_DEPTH = 6


def is_widget(obj: Any) -> bool:
    """Return whether the object is a widget. Imports nothing."""
    module = sys.modules.get("ipywidgets")
    return module is not None and isinstance(obj, getattr(module, "Widget", ()))


def still(widget: Any) -> dict[str, Any]:
    """Return forms that show the widget's current state.

    The forms are its text, its picture, or its value after its description. A box shows all its children.
    """
    if type(widget).__name__ == "Image" and getattr(widget, "format", "") in ("png", "jpeg", "gif"):
        return {f"image/{widget.format}": bytes(widget.value)}
    return {"text/html": _html(widget, 0)}


def _html(widget: Any, depth: int) -> str:
    kind = type(widget).__name__
    children = getattr(widget, "children", None)
    if children is not None and depth < _DEPTH:
        titles = getattr(widget, "titles", ())
        parts = []
        for i, child in enumerate(list(children)[:_MOST_CHILDREN]):
            title = f"<b>{html.escape(str(titles[i]))}</b>" if i < len(titles) and titles[i] else ""
            parts.append(title + _html(child, depth + 1))
        tag = "span" if kind == "HBox" else "div"
        return "".join(f"<{tag}>{part}</{tag}> " for part in parts)
    value = getattr(widget, "value", "")
    described = html.escape(str(getattr(widget, "description", "") or ""))
    if kind in ("HTML", "HTMLMath"):
        return f"{described} {value}".strip()  # views sanitise this HTML, as all HTML of ranks
    if isinstance(value, (bytes, memoryview)):
        value = kind
    shown = html.escape(str(value if value != "" else described or kind))
    top = getattr(widget, "max", None)
    if "Progress" in kind and top is not None:
        shown += f" / {html.escape(str(top))}"
    return f"{described} {shown}" if described and described != shown else shown
