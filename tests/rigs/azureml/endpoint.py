"""The one address of the plane: Resource Manager, and the way to the blobs, with the faults of both."""

from __future__ import annotations

import contextlib
import json
import random
import re
import secrets
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.rigs.kept_plane import Faults
from tests.rigs.plain_http import ask

from .azurite import ACCOUNT

__all__ = ["Fault", "Front", "Refusal"]

_OWN = ("connection", "transfer-encoding", "content-length", "server", "date", "keep-alive")


class Refusal(Exception):
    """An error of the service's."""

    def __init__(self, status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None):
        super().__init__(message or code)
        self.status, self.code, self.headers = status, code, dict(headers or {})


@dataclass
class Fault:
    """An answer in place of the service's to what matches METHOD PATH."""

    pattern: str
    status: int
    code: str
    message: str = "as the test wishes"
    times: int = -1
    share: float = 1.0
    headers: Mapping[str, str] = field(default_factory=dict)


class Front:
    """Listens on all addresses of this machine."""

    def __init__(
        self,
        blobs: int,
        answer: Callable[[str, str, str, Any], tuple[int, Any]],
        sign: Callable[[str], str],
        own_faults: Faults,
    ) -> None:
        """`blobs`: the port of their emulator. `answer`: to method, path, token and body; raises Refusal.
        `sign`: makes a signature for a container. `own_faults`: of this stand-in, not those of a test."""
        self.sign, self.secret = sign, secrets.token_hex(8)
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        self.held: dict[str, tuple[threading.Event, threading.Event]] = {}
        """Requests whose answer waits, once what they ask for is done."""
        self.answer, self._blobs = answer, blobs
        self._random, self._lock = random.Random(1), threading.Lock()
        self._server = ThreadingHTTPServer(("0.0.0.0", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: own_faults.note("the front")  # type: ignore[method-assign]
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="azure", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def check(self, request: str) -> None:
        """Raises Refusal where there is a fault for the request."""
        with self._lock:
            self.requests.append(request)
            for fault in self.faults:
                if not fault.times or not re.search(fault.pattern, request):
                    continue
                if fault.share < 1 and self._random.random() > fault.share:
                    continue
                fault.times -= 1
                raise Refusal(fault.status, fault.code, fault.message, fault.headers)

    def identity(self, query: str, secret: str | None) -> tuple[int, Any, bytes]:
        """The token of a machine's identity, which its own service gives out there."""
        asked = urllib.parse.parse_qs(query)
        if secret != self.secret or asked.get("resource") != ["https://storage.azure.com"]:
            raise Refusal(403, "Forbidden", query)
        told = {"access_token": self.secret, "expires_on": str(int(time.time()) + 3600)}
        return 200, [("content-type", "application/json")], json.dumps(told).encode()

    def as_somebody(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any, bytes]:
        """Of an identity, which the emulator takes over TLS alone: a signature goes in its place."""
        if headers.pop("Authorization") != f"Bearer {self.secret}" or "x-ms-version" not in {
            name.lower() for name in headers
        }:
            raise Refusal(403, "AuthorizationPermissionMismatch")
        joint = "&" if path.partition("?")[2] else ("" if path.endswith("?") else "?")
        return self.forward(
            method, f"{path}{joint}{self.sign(path.split('/')[2].partition('?')[0])}", headers, body
        )

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        status, answered, data = ask(self._blobs, method, path, headers, body)
        return status, answered.items(), data


def _handler(front: Front) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(size)
            path, _, query = self.path.partition("?")
            to_blobs = path.startswith(f"/{ACCOUNT}/")
            asked = f"{self.command} {urllib.parse.unquote(path)}"
            if to_blobs and "comp=list" in query:
                asked += " list"
            try:
                front.check(asked)
                if to_blobs:
                    kept = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
                    if kept.get("Authorization", "").startswith("Bearer "):
                        return self._answer(*front.as_somebody(self.command, self.path, kept, body))
                    return self._answer(*front.forward(self.command, self.path, kept, body))
                if path == "/msi/token":
                    return self._answer(*front.identity(query, self.headers.get("secret")))
                token = self.headers.get("authorization", "").removeprefix("Bearer ")
                status, told = front.answer(self.command, self.path, token, json.loads(body or b"null"))
                for pattern, (reached, go_on) in list(front.held.items()):
                    if re.search(pattern, asked):
                        reached.set()
                        go_on.wait(60)
                text = json.dumps(told).encode()
                return self._answer(status, [("content-type", "application/json")], text)
            except Refusal as refused:
                headers = [*refused.headers.items(), ("x-ms-error-code", refused.code)]
                if to_blobs:
                    xml = f"<Error><Code>{refused.code}</Code><Message>{refused}</Message></Error>"
                    kind = ("content-type", "application/xml")
                    return self._answer(refused.status, [*headers, kind], xml.encode())
                text = json.dumps({"error": {"code": refused.code, "message": str(refused)}}).encode()
                kind = ("content-type", "application/json")
                return self._answer(refused.status, [*headers, kind], text)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            length = str(len(body))
            for name, value in headers:
                if name.lower() not in _OWN:
                    self.send_header(name, value)
                elif name.lower() == "content-length" and self.command == "HEAD":
                    length = value
            if status not in (204, 304):
                self.send_header("content-length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # who asked was ended
                super().handle()

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
