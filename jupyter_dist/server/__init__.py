"""Jupyter server extension: answers to a browser about runs, over REST and one WebSocket per page.

Only this package imports jupyter_server and tornado. All paths are below `jupyter-dist/api/` (openapi.json).
`queries` has the answers, and blocking work runs in threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

__all__: list[str] = []


def _load_jupyter_server_extension(app: ServerApp) -> None:
    """Called by jupyter_server when it starts."""
    from .rest import add_routes

    add_routes(app.web_app)
    app.log.debug("jupyter_dist: the API is at %sjupyter-dist/api/", app.base_url)
