"""Charts of Altair and plotly as data that a front-end draws itself, without a server or a kernel.

Altair returns HTML that loads its library from the internet. JupyterLab contains that library, and draws the
chart if the data is beside the HTML. Other front-ends use the HTML. The widgets of both libraries
(`JupyterChart`, `FigureWidget`) need a model, which ends with the rank. So the chart in the widget is shown.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["chart_of", "with_data"]

_VEGA_LITE = "application/vnd.vegalite.v{}+json"


def chart_of(obj: Any) -> Any:
    """Return the chart that a widget shows, or any other object itself. Imports no new module."""
    try:
        altair, plotly = sys.modules.get("altair"), sys.modules.get("plotly.graph_objects")
        if altair is not None and isinstance(obj, altair.JupyterChart):
            return obj.chart
        if plotly is not None and isinstance(obj, plotly.FigureWidget):
            return plotly.Figure(obj)
    except Exception as error:  # the installed version may lack such a class
        print(f"{type(obj).__name__} has no chart: {type(error).__name__}: {error}", file=sys.stderr)
    return obj


def with_data(obj: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Return the forms of an object. If it is a chart of Altair with HTML only, add its data."""
    altair = sys.modules.get("altair")
    if altair is None or "text/html" not in data or any("vnd.vega" in mime for mime in data):
        return data
    try:
        if not isinstance(obj, altair.TopLevelMixin):
            return data
        major = str(altair.SCHEMA_VERSION).lstrip("v").partition(".")[0]
        # The chart is dumped to text and parsed again: so the value is JSON, whatever the user put in.
        return {_VEGA_LITE.format(major): json.loads(obj.to_json()), **data}
    except Exception as error:
        print(f"{type(obj).__name__}.to_json raised {type(error).__name__}: {error}", file=sys.stderr)
        return data
