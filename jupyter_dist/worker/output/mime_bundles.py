"""The forms in which an object can be shown: a MIME bundle, made by the methods that IPython calls.

These methods are a protocol (https://ipython.readthedocs.io/en/stable/config/integrating.html). The import of
IPython is avoided, because it lasts longer than all of a cell's displays. A host that trains may also lack
IPython. A figure of matplotlib has no such method. This module draws the figure, as IPython does.
"""

from __future__ import annotations

import sys
from typing import Any

from .charts import chart_of, with_data
from .widget_snapshots import is_widget, still

__all__ = ["forms", "is_figure", "is_rich", "plain"]

_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "application/pdf": "_repr_pdf_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
}
_CONTAINERS = (dict, list, tuple, set, frozenset)
_MOST_PRETTY = 10_000


def forms(obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `(data, metadata)` by MIME type. `text/plain` is always there.

    If a method raises, its form is left out and the error is printed to the log, as IPython does.
    """
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    if isinstance(obj, type):
        # A class has the methods of its objects, but is not one of these objects.
        return {"text/plain": plain(obj)}, metadata
    obj = chart_of(obj)
    bundle = _called(obj, "_repr_mimebundle_", include=include, exclude=exclude)
    if bundle is not None:
        both = bundle if isinstance(bundle, tuple) else (bundle, {})
        data.update(both[0])
        metadata.update(both[1])
        data = with_data(obj, data)
    if is_widget(obj):
        data = {"text/plain": data.get("text/plain", ""), **still(obj)}
    if is_figure(obj):
        picture = _drawn(obj)
        if picture is not None:
            data["image/png"] = picture
    for mime, method in _METHODS.items():
        if mime in data or (mime == "image/jpeg" and "image/png" in data):
            continue  # two formats would repeat the same picture
        found = _called(obj, method)
        if found is None:
            continue
        if isinstance(found, tuple) and len(found) == 2:
            found, metadata[mime] = found
        data[mime] = found
    data.setdefault("text/plain", plain(obj))
    if include is not None:
        data = {mime: value for mime, value in data.items() if mime in include}
    if exclude is not None:
        data = {mime: value for mime, value in data.items() if mime not in exclude}
    return data, metadata


def is_rich(obj: Any) -> bool:
    """Return whether the object may have more forms than text.

    This is cheap, while the text can be that of a million numbers.
    """
    if isinstance(obj, type):
        return False
    methods = ("_repr_mimebundle_", *_METHODS.values())
    return is_figure(obj) or any(getattr(type(obj), method, None) is not None for method in methods)


def plain(obj: Any) -> str:
    """Return nearly the text that IPython prints in a terminal."""
    try:
        text = repr(obj)
        if type(obj) in _CONTAINERS and 79 < len(text) <= _MOST_PRETTY:
            import pprint

            return pprint.pformat(obj, width=79, sort_dicts=False)
    except Exception as error:
        return f"<{type(obj).__name__}, whose repr raised {type(error).__name__}>"
    return text


def is_figure(obj: Any) -> bool:
    """Return whether the object is a figure of matplotlib. Imports nothing."""
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(obj, module.Figure)


def _called(obj: Any, method: str, **options: Any) -> Any:
    # The lookup is on the class: an object with a `__getattr__` for every name has none of these methods.
    if getattr(type(obj), method, None) is None:
        return None
    try:
        return getattr(obj, method)(**options)
    except NotImplementedError:
        return None
    except Exception as error:
        print(f"{type(obj).__name__}.{method} raised {type(error).__name__}: {error}", file=sys.stderr)
        return None


def _drawn(figure: Any) -> bytes | None:
    """Draw a figure as the notebook does, cropped to its content. Returns None for an empty figure."""
    import io

    if not (figure.axes or figure.lines or figure.texts or figure.images or figure.patches):
        return None
    file = io.BytesIO()
    look = {"facecolor": figure.get_facecolor(), "edgecolor": figure.get_edgecolor()}
    try:
        figure.savefig(file, format="png", dpi=figure.dpi, bbox_inches="tight", **look)
    except Exception as error:
        print(f"the figure could not be drawn: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    return file.getvalue()
