"""Widgets of ipywidgets as what they show: on a rank nobody can move them, and their models end with it."""

from __future__ import annotations

import html
import sys
from typing import Any

__all__ = ["is_widget", "still"]

_MOST_CHILDREN = 100
_DEPTH = 6


def is_widget(obj: Any) -> bool:
    """Whether it is a widget; imports nothing."""
    module = sys.modules.get("ipywidgets")
    return module is not None and isinstance(obj, getattr(module, "Widget", ()))


def still(widget: Any) -> dict[str, Any]:
    """Forms that show a widget as it is now: its text, its picture, its value behind its description; of a
    box all that is in it."""
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
        return f"{described} {value}".strip()  # made safe where it is shown, as all HTML of ranks
    if isinstance(value, (bytes, memoryview)):
        value = kind
    shown = html.escape(str(value if value != "" else described or kind))
    top = getattr(widget, "max", None)
    if "Progress" in kind and top is not None:
        shown += f" / {html.escape(str(top))}"
    return f"{described} {shown}" if described and described != shown else shown
