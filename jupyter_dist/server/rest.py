"""REST: one class of request handlers, controlled by the table of operations."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.iostream import StreamClosedError

from ..errors import DistError, InputError, RunNotFound
from ..folder import runs_root
from ..queries.media_pages import Raw
from ..text.cancellation import Cancellation
from .operations import OPERATIONS, Operation
from .websocket import WatchSocket

__all__ = ["RestHandler", "add_routes"]

BASE = "jupyter-dist/api"
T = TypeVar("T")
_STALLED_S = 600.0
"""Time after which a download's client counts as gone if it has received nothing."""
_LEAST_PACKED = 1024
_PACKING = 3
"""Level of compression. A higher level takes twice the time for 10 % fewer bytes."""
_NO_RIGHTS = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# Two pools: a stack dump or a search takes seconds, and pages of logs must not wait behind them.
_quick = ThreadPoolExecutor(4, "jupyter-dist")
_slow = ThreadPoolExecutor(4, "jupyter-dist-slow")


class RestHandler(APIHandler):
    """Handler of all methods of one path."""

    auth_resource = "jupyter_dist"

    def initialize(self, operations: dict[str, Operation]) -> None:
        self._operations = operations
        self._cancellation = Cancellation()

    def on_connection_close(self) -> None:
        self._cancellation.cancel()
        super().on_connection_close()

    @web.authenticated
    @authorized
    async def get(self, **path: str) -> None:
        await self._do("GET", path)

    @web.authenticated
    @authorized
    async def post(self, **path: str) -> None:
        await self._do("POST", path)

    @web.authenticated
    @authorized
    async def put(self, **path: str) -> None:
        await self._do("PUT", path)

    @web.authenticated
    @authorized
    async def delete(self, **path: str) -> None:
        await self._do("DELETE", path)

    async def _do(self, method: str, path: dict[str, str]) -> None:
        operation = self._operations.get(method)
        if operation is None:
            self.set_header("Allow", ", ".join(sorted(self._operations)))
            raise web.HTTPError(405)
        # Tornado checks the XSRF cookie only for methods that change something. Other sites must not read
        # logs either. The check also accepts a browser's own Referer, so a download link works.
        self.check_xsrf_cookie()
        try:
            arguments = {**operation.arguments(self._given(method)), **path}
            if (folder := arguments.get("folder")) is not None:
                arguments["folder"] = self._on_disk(folder)
            if operation.cancellable:
                arguments["cancellation"] = self._cancellation
            if operation.file is not None:
                await self._send_file(operation, arguments, operation.file)
                return
            if operation.content:
                self._send_content(await _in_thread(_called, operation, arguments, slow=operation.slow))
                return
            packed = "gzip" in self.request.headers.get("Accept-Encoding", "")
            answer, packed = await _in_thread(_encoded, operation, arguments, packed, slow=operation.slow)
        except DistError as error:
            self._refuse(error)
            return
        self.set_header("Cache-Control", "no-store")
        self.set_header("Vary", "Accept-Encoding")
        if packed:
            self.set_header("Content-Encoding", "gzip")
        self.finish(answer)

    def _given(self, method: str) -> dict[str, Any]:
        if method in ("GET", "DELETE"):
            # Blanks count: a search for "epoch 1 " must not find epoch 10.
            return {name: self.get_query_argument(name, strip=False) for name in self.request.query_arguments}
        try:
            body = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise InputError("the body must be a JSON object")
        return body

    def _on_disk(self, folder: str) -> Path | None:
        """Return a folder of notebooks as a path. None if this server has no such folder on its disk."""
        given = self.settings.get("server_root_dir")
        if not given:  # its notebooks are in a store
            return None
        # As in Jupyter, a link inside the root may lead out of it, and `..` may not.
        root = os.path.abspath(os.path.expanduser(given))
        found = Path(os.path.abspath(os.path.join(root, folder.strip("/"))))
        # `Path.is_dir` raises an error for some folders, such as one without permission.
        return found if found.is_relative_to(root) and os.path.isdir(found) else None

    def _refuse(self, error: DistError) -> None:
        answer: dict[str, Any] = {"message": str(error)}
        if isinstance(error, RunNotFound):
            # The kernel may store its runs elsewhere. The view shows both places.
            answer["root"] = str(runs_root())
            self.set_status(404)
        else:
            self.set_status(400 if isinstance(error, InputError) else 409)
            if isinstance(error, InputError) and error.field is not None:
                answer["field"] = error.field
        self.finish(json.dumps(answer))

    def _send_content(self, found: Raw) -> None:
        # A user may open the bytes as a page of this origin. It runs no script and fetches nothing.
        self.set_header("Content-Security-Policy", _NO_RIGHTS)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Type", found.content_type)
        self.set_header("Cache-Control", "private, max-age=86400, immutable")  # the address contains its hash
        self.finish(found.data, set_content_type=found.content_type)

    async def _send_file(self, operation: Operation, arguments: dict[str, Any], kind: str) -> None:
        pieces: Iterator[bytes] = await _in_thread(_called, operation, arguments)
        # The browser saves the file and never shows it, whatever a run has written into it.
        kind = f"{kind}; charset=utf-8" if kind == "text/plain" else kind
        self.set_header("Content-Type", kind)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Disposition", f'attachment; filename="{_file_name(**arguments)}"')
        try:
            while piece := await _in_thread(next, pieces, b""):
                self.write(piece)
                # Wait for a slow client: only one piece is in memory, never the file. After the timeout the
                # client is asleep or disconnected, and the file would otherwise stay open.
                await asyncio.wait_for(self.flush(), _STALLED_S)
        except StreamClosedError:
            return
        except asyncio.TimeoutError:
            self.log.info("jupyter_dist: a download was left, and is ended")
            if self.request.connection is not None:
                self.request.connection.stream.close()  # type: ignore[attr-defined]
            return
        self.finish(set_content_type=kind)


def _file_name(
    id: str,
    rank: int | None = None,
    launcher: str | None = None,
    file: str | None = None,
    attempt: int | None = None,
) -> str:
    """Return the file name of a download. All parts have already been checked against existing names."""
    if file is not None:
        return f"{id}-{file}"
    part = f"-rank-{rank}" if rank is not None else f"-{launcher}" if launcher is not None else ""
    return f"{id}{part}{'' if attempt is None else f'-attempt-{attempt}'}.log"


def _called(operation: Operation, arguments: dict[str, Any]) -> Any:
    return operation.answer(**arguments)


def _encoded(operation: Operation, arguments: dict[str, Any], packed: bool) -> tuple[bytes, bool]:
    """Return the answer as JSON, and whether it is compressed."""
    # Encoded in the thread too, because a page or many curves are a megabyte.
    found = json.dumps(operation.answer(**arguments), allow_nan=False).encode()
    packed = packed and len(found) >= _LEAST_PACKED
    return (gzip.compress(found, _PACKING) if packed else found), packed


async def _in_thread(fn: Callable[..., T], *args: Any, slow: bool = False) -> T:
    return await asyncio.get_running_loop().run_in_executor(_slow if slow else _quick, fn, *args)


def add_routes(app: web.Application) -> None:
    """Add the API below the server's base URL."""
    base = url_path_join(app.settings["base_url"], BASE)
    paths: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation
    routes: list[tuple[Any, ...]] = [
        (_pattern(base, path), RestHandler, {"operations": methods}) for path, methods in paths.items()
    ]
    app.add_handlers(".*$", [*routes, (_pattern(base, "/watch"), WatchSocket)])


def _pattern(base: str, path: str) -> str:
    return re.escape(base) + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)
