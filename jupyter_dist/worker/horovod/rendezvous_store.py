"""The store in which Horovod's ranks find each other, served over HTTP by one of them.

Horovod's own is part of horovodrun. This one needs nothing but the standard library and runs in a thread of
a rank, so that a machine which none of the ranks can reach may start them. What Gloo asks of it:
https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/http_store.cc
"""

from __future__ import annotations

import http.client
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Store", "put", "wait_until_served"]

_HELD_S = 0.5
"""A question for what is not there yet is held so long: Gloo asks again every 10 ms, for every rank."""
_MOST_BYTES = 1 << 20
_PAUSE_S = 0.1


class Store(ThreadingHTTPServer):
    """Values by scope and key, served by a thread of this process until its end.

    Raises OSError where the port is taken. Port 0: any that is free, see `port`.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: str, port: int) -> None:
        super().__init__((address, port), _Handler)
        self._changed = threading.Condition()
        self._scopes: dict[str, dict[str, bytes]] = {}
        self._left: dict[str, set[str]] = {}
        threading.Thread(target=self.serve_forever, name="horovod store", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def server_bind(self) -> None:
        # That of HTTPServer asks the resolver for this machine's name, which may take seconds.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever breaks off a connection will try again, or has ended."""

    def clear(self) -> None:
        """Forget all."""
        with self._changed:
            self._scopes.clear()
            self._left.clear()

    def get(self, scope: str, key: str) -> bytes | None:
        """The value; waits for it a moment. None: it is not there yet."""
        deadline = time.monotonic() + _HELD_S
        with self._changed:
            while True:
                value = self._scopes.get(scope, {}).get(key)
                left_s = deadline - time.monotonic()
                if value is not None or left_s <= 0:
                    return value
                self._changed.wait(left_s)

    def put(self, scope: str, key: str, value: bytes) -> None:
        with self._changed:
            self._scopes.setdefault(scope, {})[key] = value
            self._changed.notify_all()

    def leave(self, scope: str, key: str) -> None:
        """One rank, whose number is the key, is done with a scope, which is forgotten once all are.

        A slower one may still have to read what this one has put there. As none is done before it has read
        something of each, all have then put something there under their numbers.
        """
        with self._changed:
            left = self._left.setdefault(scope, set())
            left.add(key)
            if left >= {name for name in self._scopes.get(scope, {}) if name.isdigit()}:
                self._scopes.pop(scope, None)
                del self._left[scope]


class _Handler(BaseHTTPRequestHandler):
    server: Store
    timeout = 30

    def do_GET(self) -> None:
        place = self._place()
        if place is not None:
            value = self.server.get(*place)
            self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        place = self._place()
        size = self.headers.get("Content-Length", "")
        if place is None or not size.isdigit() or int(size) > _MOST_BYTES:
            self._answer(400)
            return
        self.server.put(*place, self.rfile.read(int(size)))
        self._answer(200)

    def do_DELETE(self) -> None:
        place = self._place()
        if place is not None:
            self.server.leave(*place)
            self._answer(200)

    def _place(self) -> tuple[str, str] | None:
        parts = self.path.split("/")
        if len(parts) == 3:
            return parts[1], parts[2]
        self._answer(400)
        return None

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing of it is for the log of a rank."""


def put(address: str, port: int, scope: str, key: str, value: bytes) -> None:
    """Put a value into a store that is served. Raises OSError."""
    connection = http.client.HTTPConnection(address, port, timeout=30)
    try:
        connection.request("PUT", f"/{scope}/{key}", value)
        with connection.getresponse() as response:
            response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"the store at {address}:{port}: {error!r}") from error
    finally:
        connection.close()


def wait_until_served(address: str, port: int, seconds: float) -> None:
    """Return once there is a store. Raises TimeoutError, with why there was none in the end."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address, port), timeout=10).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"hvd.init(): this rank could not reach rank 0 at {address}, port {port}, for "
                    f"{seconds:g} s ({error}). Call hvd.init() on all ranks"
                ) from None
        time.sleep(_PAUSE_S)
