"""A real S3 server (moto's) behind a way to it that has every fault of a store far away.

    with FaultyStore() as store:            # s3://mail exists in it
        store.url                           # for AWS_ENDPOINT_URL: on all of this machine's addresses
        store.away()                        # connections are refused with a reset …
        store.back()

Objects become visible late and out of order, some appear again after they were removed, some answers are 503
(SlowDown) or 429. `counts` tells how many requests of each kind there were, `signers` with whose keys they
were signed. It is STS as well, which gives out roles.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.ports import take_port
from tests.rigs.plain_http import ask

__all__ = ["FaultyStore"]


class FaultyStore:
    """A context manager. The shares are of all requests; delays are in seconds, at most."""

    def __init__(
        self,
        *,
        busy: float = 0.04,
        late: float = 0.2,
        late_s: float = 0.8,
        doubled: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.busy, self.late, self.late_s, self.doubled = busy, late, late_s, doubled
        self.counts: Counter[str] = Counter()
        self.signers: set[str] = set()
        self.largest = 0
        self._random = random.Random(seed)
        self._away = threading.Event()
        self._pending = 0
        self._lock = threading.Lock()

    def __enter__(self) -> FaultyStore:
        self._port = take_port()
        argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        self._moto = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._await_moto()
        self._server = _Server(("0.0.0.0", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.port = self._server.server_address[1]
        self.forward("PUT", "/mail", {}, b"")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._moto.kill()
        self._moto.wait()

    def away(self) -> None:
        self._away.set()

    def back(self) -> None:
        self._away.clear()

    def settle(self) -> bool:
        """Have no more objects come late or twice; whether all of those are there that are under way."""
        self.late = self.doubled = 0
        return self._pending == 0

    @property
    def is_away(self) -> bool:
        return self._away.is_set()

    def names(self) -> list[str]:
        """What lies in the bucket, asked without any fault."""
        from xml.etree import ElementTree

        _, _, body = self.forward("GET", "/mail?list-type=2", {}, b"")
        return [node.text or "" for node in ElementTree.fromstring(body).iter() if node.tag.endswith("Key")]

    def chance(self) -> float:
        with self._lock:
            return self._random.random()

    def count(self, kind: str, size: int) -> None:
        with self._lock:
            self.counts[kind] += 1
            self.largest = max(self.largest, size)

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        status, answered, data = ask(self._port, method, path, headers, body)
        return status, dict(answered), data

    def put_later(self, path: str, headers: dict[str, str], body: bytes, after_s: float) -> None:
        def put() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):  # the test may be over by then
                self.forward("PUT", path, headers, body)
            with self._lock:
                self._pending -= 1

        with self._lock:
            self._pending += 1
        timer = threading.Timer(after_s, put)
        timer.daemon = True
        timer.start()

    def _await_moto(self) -> None:
        deadline = Deadline()
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self._port}/moto-api/", timeout=5).close()
                return
            except OSError:
                if deadline.passed() or self._moto.poll() is not None:
                    raise
                time.sleep(0.1)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that was killed in the midst of a request


def _handler(store: FaultyStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if "chunked" in self.headers.get("transfer-encoding", ""):
                raise NotImplementedError("no client of these tests sends chunks")
            kind = "LIST" if "list-type" in self.path else self.command
            store.count(kind, len(body))
            if signer := re.search(r"Credential=([^/]+)/", self.headers.get("authorization") or ""):
                store.signers.add(signer[1])
            if store.is_away:
                # A reset, as from a machine that has just gone.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                return
            if store.chance() < store.busy:
                code, name = (503, "SlowDown") if store.chance() < 0.5 else (429, "TooManyRequests")
                told = f"<Error><Code>{name}</Code><Message>Reduce your request rate</Message></Error>"
                self._answer(code, {"content-type": "application/xml"}, told.encode())
                return
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
            is_mail = "/up/" in self.path or "/down/" in self.path
            if kind == "PUT" and is_mail:
                if store.chance() < store.doubled:
                    store.put_later(self.path, headers, body, 2 * store.late_s * store.chance())
                if store.chance() < store.late:
                    store.put_later(self.path, headers, body, store.late_s * store.chance())
                    self._answer(200, {"etag": '"late"'}, b"")
                    return
            self._answer(*store.forward(self.command, self.path, headers, body))

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

        def _answer(self, code: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(code)
            for name, value in headers.items():
                if name.lower() not in (
                    "connection",
                    "transfer-encoding",
                    "content-length",
                    "server",
                    "date",
                ):
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("content-length", length or str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
