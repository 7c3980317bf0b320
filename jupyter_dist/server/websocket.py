"""WebSocket on which a page sends what it watches, and receives changes up to fifty times a second.

The server checks the runs' files soon after a notification that one has changed. It also checks them from
time to time, because not every change causes a notification.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ..queries import RunChanges
from ..record.file_changes import FileChanges

__all__ = ["WatchSocket"]

_TICK_S, _QUICK_S = 0.1, 0.02
_STAY_QUICK_S = 2.0
_REST = 4.0
"""Factor for the pause between two checks: this many times a check's duration, up to a tick."""
_MAX_MESSAGE = 64 << 10
_MOST_UNDER_WAY = 2
"""Limit of messages with lines that the page has not confirmed.

On a slow connection the page asks for lines.
"""
_pool = ThreadPoolExecutor(4, "jupyter-dist-watch")


class WatchSocket(WebSocketMixin, JupyterHandler, WebSocketHandler):
    """WebSocket of one page.

    The page sends `{"watch": [ids…, "runs"], "tails": [{id, rank, launcher}…]}`. The server sends lists of
    the messages of `queries.RunChanges`. After a message with `"push": N` the page sends `{"got": N}`.
    """

    auth_resource = "jupyter_dist"

    @ws_authenticated
    @authorized(action="read")  # type: ignore[untyped-decorator]
    async def get(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        if not self.request.headers.get("Origin"):
            # Every browser sends Origin, and it was checked. Without it, a cookie needs its XSRF token.
            self.check_xsrf_cookie()
        self._watch = RunChanges()
        self._wake = asyncio.Event()
        self._changes = FileChanges()
        self._heard_of: set[Path] = set()
        self._changed = asyncio.Event()
        self._pushed = self._got = 0
        self._task: asyncio.Task[None] | None = None
        await super().get(*args, **kwargs)

    @property
    def max_message_size(self) -> int:
        return _MAX_MESSAGE

    def get_compression_options(self) -> dict[str, Any]:
        return {}

    def open(self, *args: Any, **kwargs: Any) -> None:
        super().open(*args, **kwargs)
        self._loop = asyncio.get_running_loop()
        if (descriptor := self._changes.fileno()) is not None:
            self._loop.add_reader(descriptor, self._on_change)
        self._task = asyncio.create_task(self._tell())

    def _on_change(self) -> None:
        self._changes.take()
        self._changed.set()

    def on_message(self, message: str | bytes) -> None:
        try:
            said = json.loads(message)
            if "got" in said:
                self._got = int(said["got"])
                return
            tails = [tail for tail in said.get("tails", ()) if isinstance(tail, dict)]
            self._watch.set([name for name in said["watch"] if isinstance(name, str)], tails)
        except (ValueError, TypeError, KeyError, AttributeError):
            self.close(1003, 'expected {"watch": [...]}')
            return
        self._wake.set()
        self._changed.set()

    def on_close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            if (descriptor := self._changes.fileno()) is not None:
                self._loop.remove_reader(descriptor)
        self._changes.close()
        super().on_close()

    async def _tell(self) -> None:
        loop = self._loop
        quick_until = 0.0
        try:
            while True:
                if self._watch.idle:
                    self._wake.clear()
                    await self._wake.wait()
                began = loop.time()
                self._wake.clear()
                self._changed.clear()
                messages, took = await loop.run_in_executor(_pool, self._look)
                if messages:
                    # Waits until it is sent. So a slow client gets fewer messages, and none queue up.
                    # One list: the page draws all that it contains in one frame.
                    await self.write_message(messages)
                    quick_until = began + _STAY_QUICK_S
                self._hear_of(self._watch.folders())
                least = min(_TICK_S, max(_QUICK_S, _REST * took))
                await _until(self._wake, least)  # a new request of the page ends this pause
                more = 0.0 if self._changes.fileno() is None else least
                await _until(self._changed, more if began < quick_until else _TICK_S - least)
        except WebSocketClosedError:
            return
        except Exception:
            self.log.exception("jupyter_dist: watching runs failed")
            self.close(1011, "watching failed")

    def _look(self) -> tuple[str, float]:
        """Return the messages on what changed, as a JSON list, and the CPU seconds of this check.

        The text is empty if nothing changed. Runs on another thread.
        """
        began = time.thread_time()
        found = self._watch.poll(tails=self._pushed - self._got < _MOST_UNDER_WAY)
        for message in found:
            if message["kind"] == "log" and "tails" in message:
                self._pushed += 1
                message["push"] = self._pushed
        messages = json.dumps(found, allow_nan=False) if found else ""
        return messages, time.thread_time() - began

    def _hear_of(self, folders: list[Path]) -> None:
        for path in self._heard_of - set(folders):
            self._changes.forget(path)
        self._heard_of &= set(folders)
        new = [path for path in folders if path not in self._heard_of]
        self._heard_of |= {path for path in new if self._changes.watch(path)}


async def _until(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
