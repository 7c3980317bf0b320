"""The address of the service: every request comes here first, and most go on to moto.

Faults are told here: an answer in place of the service's, or an object that nobody sees for a while.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import random
import re
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.rigs.kept_plane import Faults
from tests.rigs.plain_http import ask

from .service_model import Refusal

__all__ = ["Fault", "FrontDoor"]

_JSON = "application/x-amz-json-1.1"
_OWN = ("connection", "transfer-encoding", "content-length", "server", "date")


@dataclass
class Fault:
    """An answer in place of the service's to what matches: a call's name, or METHOD PATH as USER."""

    pattern: str
    status: int
    code: str
    message: str
    times: int
    """How often; -1: ever."""
    share: float
    """Of the requests that match."""


class FrontDoor:
    """Listens on all addresses of this machine. `requests` are all that were made."""

    def __init__(
        self,
        moto: int,
        answer: Callable[[str, dict[str, Any]], dict[str, Any] | None],
        own_faults: Faults,
    ) -> None:
        """`moto`: the port of moto's server. `answer`: of a call of SageMaker's; None: moto has it.
        `own_faults`: of this stand-in, not those of a test."""
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        self.cuts: dict[str, int] = {}
        """Requests whose connection ends in the midst of them, and how many more of them."""
        self.held: dict[str, tuple[threading.Event, threading.Event]] = {}
        """Calls whose answer waits: that there was one, and for what it waits."""
        self.charted: dict[str, dict[str, float]] = {}
        """The last values of the experiments' metrics, by component."""
        self.answer = answer
        self._moto = moto
        self._late: list[tuple[str, float]] = []
        self._timers: list[threading.Timer] = []
        self._random = random.Random(1)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("0.0.0.0", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: own_faults.note("the front door")  # type: ignore[method-assign]
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="front door", daemon=True).start()

    def close(self) -> None:
        for timer in self._timers:  # what is late is never there, and S3 ends soon
            timer.cancel()
            timer.join()
        self._server.shutdown()
        self._server.server_close()

    def fail(self, fault: Fault) -> None:
        with self._lock:
            self.faults.append(fault)

    def delay(self, pattern: str, seconds: float) -> None:
        """Whatever is put in S3 under a path that matches is seen so much later."""
        with self._lock:
            self._late.append((pattern, seconds))

    def heal(self) -> None:
        with self._lock:
            self.faults.clear()
            self.cuts.clear()

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
                raise Refusal(fault.status, fault.code, fault.message)

    def is_cut(self, request: str) -> bool:
        with self._lock:
            for pattern, times in self.cuts.items():
                if times and re.search(pattern, request):
                    self.cuts[pattern] -= 1
                    return True
        return False

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        late_s = max((s for pattern, s in self._late if re.search(pattern, f"{method} {path}")), default=0.0)
        if late_s and method == "PUT":
            timer = threading.Timer(late_s, self._ask, (method, path, headers, body))
            self._timers.append(timer)
            timer.start()
            return 200, [("etag", '"late"')], b""
        return self._ask(method, path, headers, body)

    def note_metrics(self, body: bytes) -> None:
        told = json.loads(body)
        with self._lock:
            values = self.charted.setdefault(told["TrialComponentName"], {})
            values |= {each["MetricName"]: each["Value"] for each in told["MetricData"]}

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        status, answered, data = ask(self._moto, method, path, headers, body)
        return status, answered.items(), data


def _credentials() -> bytes:
    """Of a role: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-iam-roles.html"""
    until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    told = {"AccessKeyId": "role", "SecretAccessKey": "of-role", "Token": "token-of-role"}
    return json.dumps({**told, "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode()


def _handler(door: FrontDoor) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            if door.is_cut(f"{self.command} {urllib.parse.unquote(self.path)}"):
                self.rfile.read(size // 2)
                self.close_connection = True
                return
            body = self.rfile.read(size)
            target = self.headers.get("x-amz-target", "")
            kept = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
            try:
                if self.path.startswith("/v2/credentials/"):
                    return self._answer(200, [("content-type", "application/json")], _credentials())
                if target.startswith("SageMaker."):
                    call = target.partition(".")[2]
                    door.check(call)
                    told = door.answer(call, json.loads(body or b"{}"))
                    if call in door.held:
                        reached, go_on = door.held[call]
                        reached.set()
                        go_on.wait(60)
                    if told is not None:
                        return self._answer(200, [("content-type", _JSON)], json.dumps(told).encode())
                else:
                    who = re.search(r"Credential=([^/]*)/", self.headers.get("authorization", ""))
                    asked = f"{self.command} {urllib.parse.unquote(self.path)}"
                    door.check(f"{asked} as {who[1]}" if who else asked)
                    if self.path.startswith("/BatchPutMetrics"):
                        door.note_metrics(body)
                return self._answer(*door.forward(self.command, self.path, kept, body))
            except Refusal as refused:
                if target:
                    text = json.dumps({"__type": refused.code, "message": str(refused)}).encode()
                    return self._answer(refused.status, [("content-type", _JSON)], text)
                xml = f"<Error><Code>{refused.code}</Code><Message>{refused}</Message></Error>".encode()
                return self._answer(refused.status, [("content-type", "application/xml")], xml)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            length = str(len(body))
            for name, value in headers:
                if name.lower() not in _OWN:
                    self.send_header(name, value)
                elif name.lower() == "content-length" and self.command == "HEAD":
                    length = value
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
