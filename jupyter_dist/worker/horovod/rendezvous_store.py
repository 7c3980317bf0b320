"""The store in which Horovod's ranks find each other, served over HTTP by one of them.

Horovod's own store is part of horovodrun. This store needs only the standard library and runs in a thread of
a rank. So the machine that starts the ranks need not be reachable from them. Gloo's requests:
https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/http_store.cc
"""

from __future__ import annotations

import http.client
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Store", "put", "wait_for_keys", "wait_until_served"]

_HELD_S = 0.5
"""How long a request for a missing value is delayed. Gloo asks again every 10 ms, for every rank."""
_MOST_BYTES = 1 << 20
_PAUSE_S = 0.1


class Store(ThreadingHTTPServer):
    """Values by scope and key, served by a thread of this process until the process ends.

    Port 0 chooses a free port, see `port`.
    Raises OSError if the port is in use.
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
        # HTTPServer's method asks the resolver for this machine's name, which can last seconds.
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: a client that breaks a connection will try again, or has ended."""

    def end(self) -> None:
        """Stop serving within half a second. Does not block."""
        threading.Thread(target=self._end, name="horovod store's end", daemon=True).start()

    def _end(self) -> None:
        self.shutdown()
        self.server_close()

    def clear(self) -> None:
        """Remove all values."""
        with self._changed:
            self._scopes.clear()
            self._left.clear()

    def get(self, scope: str, key: str) -> bytes | None:
        """Return the value, or None if it is missing.

        Blocks for at most 0.5 s, until the value is there.
        """
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
        """Record that the rank whose number is `key` no longer needs a scope.

        When all ranks have left, remove the scope. A slower rank may still have to read a value of this rank.
        No rank leaves before it has read a value of every other rank. So by then, all ranks have stored
        values under their numbers.
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
        """Print nothing: requests do not belong in the log of a rank."""


def put(address: str, port: int, scope: str, key: str, value: bytes) -> None:
    """Put a value into a store that is being served.

    Raises OSError.
    """
    _request(address, port, "PUT", f"/{scope}/{key}", value)


def wait_for_keys(address: str, port: int, scope: str, own: str, count: int, seconds: float) -> None:
    """Put the key `own`, and wait until a store that is being served has the keys from 0 to `count` - 1.

    Raises TimeoutError with the number of the missing rank, and OSError.
    """
    put(address, port, scope, own, b"1")
    deadline = time.monotonic() + seconds
    for key in range(count):
        while _request(address, port, "GET", f"/{scope}/{key}") != 200:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"hvd.init(): rank {key} did not call hvd.init() within {seconds:g} s. Call it "
                    "on all ranks"
                )


def _request(address: str, port: int, method: str, path: str, body: bytes | None = None) -> int:
    connection = http.client.HTTPConnection(address, port, timeout=30)
    try:
        connection.request(method, path, body)
        with connection.getresponse() as response:
            response.read()
            return response.status
    except http.client.HTTPException as error:
        raise ConnectionError(f"the store at {address}:{port}: {error!r}") from error
    finally:
        connection.close()


def wait_until_served(address: str, port: int, seconds: float) -> None:
    """Wait until a store is served.

    Raises TimeoutError with the last error.
    """
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
