"""The WebSocket: a page says what it watches, and hears of changes ten times a second at most."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ..queries import Watch

__all__ = ["WatchSocket"]

_TICK_S = 0.1
_MAX_MESSAGE = 64 << 10
_pool = ThreadPoolExecutor(4, "jupyter-dist-watch")


class WatchSocket(WebSocketMixin, JupyterHandler, WebSocketHandler):
    """`{"watch": [ids…, "runs"]}` in, the messages of `queries.Watch` out."""

    auth_resource = "jupyter_dist"

    @ws_authenticated
    @authorized(action="read")  # type: ignore[untyped-decorator]
    async def get(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        if not self.request.headers.get("Origin"):
            # Every browser sends it, and it was checked. Without it a cookie needs its XSRF token.
            self.check_xsrf_cookie()
        self._watch = Watch()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        await super().get(*args, **kwargs)

    @property
    def max_message_size(self) -> int:
        return _MAX_MESSAGE

    def get_compression_options(self) -> dict[str, Any]:
        return {}

    def open(self, *args: Any, **kwargs: Any) -> None:
        super().open(*args, **kwargs)
        self._task = asyncio.create_task(self._tell())

    def on_message(self, message: str | bytes) -> None:
        try:
            watched = json.loads(message)["watch"]
            self._watch.set([name for name in watched if isinstance(name, str)])
        except (ValueError, TypeError, KeyError):
            self.close(1003, 'expected {"watch": [...]}')
            return
        self._wake.set()

    def on_close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        super().on_close()

    async def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                if self._watch.idle:
                    self._wake.clear()
                    await self._wake.wait()
                for message in await loop.run_in_executor(_pool, self._watch.poll):
                    # Waits until it is sent: to a slow client less is told, and nothing piles up.
                    await self.write_message(json.dumps(message, allow_nan=False))
                await asyncio.sleep(_TICK_S)
        except WebSocketClosedError:
            return
        except Exception:
            self.log.exception("jupyter_dist: watching runs failed")
            self.close(1011, "watching failed")
