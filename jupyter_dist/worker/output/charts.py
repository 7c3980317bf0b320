"""Charts of Altair and plotly as data that a front-end draws by itself, without a server or a kernel.

Altair gives HTML that fetches its library from the internet. JupyterLab has that library, and draws the chart
where its data is beside the HTML, which stays for where nothing else is known. Their widgets
(`JupyterChart`, `FigureWidget`) need a model, which ends with the rank: the chart in them is shown.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["chart_of", "with_data"]

_VEGA_LITE = "application/vnd.vegalite.v{}+json"


def chart_of(obj: Any) -> Any:
    """The chart that a widget shows; any other object itself. Imports nothing that is not there."""
    try:
        altair, plotly = sys.modules.get("altair"), sys.modules.get("plotly.graph_objects")
        if altair is not None and isinstance(obj, altair.JupyterChart):
            return obj.chart
        if plotly is not None and isinstance(obj, plotly.FigureWidget):
            return plotly.Figure(obj)
    except Exception as error:  # a version of theirs that has no such thing
        print(f"{type(obj).__name__} has no chart: {type(error).__name__}: {error}", file=sys.stderr)
    return obj


def with_data(obj: Any, data: dict[str, Any]) -> dict[str, Any]:
    """The forms of an object, and where it is Altair's chart as HTML alone, its data as well."""
    altair = sys.modules.get("altair")
    if altair is None or "text/html" not in data or any("vnd.vega" in mime for mime in data):
        return data
    try:
        if not isinstance(obj, altair.TopLevelMixin):
            return data
        major = str(altair.SCHEMA_VERSION).lstrip("v").partition(".")[0]
        # As text and back: what is in it then is JSON, whatever of the user's it has come from.
        return {_VEGA_LITE.format(major): json.loads(obj.to_json()), **data}
    except Exception as error:
        print(f"{type(obj).__name__}.to_json raised {type(error).__name__}: {error}", file=sys.stderr)
        return data
