"""A real Jupyter server in a process of its own, and plain HTTP to it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.ports import take_port
from tests.rigs.plain_http import ask

__all__ = ["BASE", "TOKEN", "Answer", "Server", "api", "closed", "fill"]

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-the-tests"
BASE = "/user/some%20one/"
"""As JupyterHub gives it, with what needs quoting."""
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """Started with the extension enabled as the wheel enables it, behind a prefix, with a token."""

    home: Path
    port: int = 0
    cookies: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Server:
        enabled = self.home / "config" / "jupyter_server_config.d"
        enabled.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "labextension/config/server-config/jupyter_dist.json", enabled)
        self.runs.mkdir(exist_ok=True)
        self.port = self.port or take_port()
        env = {
            **os.environ,
            "JUPYTER_DIST_RUNS": str(self.runs),
            "JUPYTER_CONFIG_DIR": str(self.home / "config"),
            "JUPYTER_DATA_DIR": str(self.home / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.home / "runtime"),
            "JUPYTER_PLATFORM_DIRS": "1",
            "PYTHONPATH": str(ROOT),
        }
        env.pop("JUPYTER_DIST_CLUSTERS", None)
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser"),
                    *(f"--port={self.port}", "--ServerApp.port_retries=0"),
                    f"--ServerApp.base_url={BASE}",
                    f"--IdentityProvider.token={TOKEN}",
                    f"--ServerApp.root_dir={self.home}",
                    "--ServerApp.ip=127.0.0.1",
                ],
                env=env,
                cwd=self.home,
                stdout=log,
                stderr=log,
            )
        info = self.home / "runtime" / f"jpserver-{self._process.pid}.json"
        deadline = Deadline()
        while True:
            # The file is there once the server listens: before, somebody else might answer.
            if info.exists() and self._answers():
                return self
            if self._process.poll() is not None or deadline.passed():
                raise AssertionError((self.home / "server.log").read_text())
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return self.call("GET", "/clusters").status == 200
        except OSError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def request(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """One request exactly as given: nothing is normalised, nothing is added."""
        status, answered, data = ask(self.port, method, target, headers, body)
        for cookie in answered.get_all("Set-Cookie") or []:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return Answer(status, dict(answered), data)

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        """A call of the API with the token."""
        data = None if body is None else json.dumps(body).encode()
        return self.request(method, api(path), {"Authorization": f"token {TOKEN}"}, data)

    def log_in(self) -> dict[str, str]:
        """Headers of a browser that is logged in by a cookie, with the XSRF token that pages send."""
        self.cookies.clear()
        self.request("GET", f"{BASE}login?token={TOKEN}")
        self.request("GET", f"{BASE}tree?token={TOKEN}")
        self.request("GET", f"{BASE}login", {"Cookie": self._cookie_text()})
        return {"Cookie": self._cookie_text(), "X-XSRFToken": self.cookies["_xsrf"], "Origin": self.origin}

    def _cookie_text(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    def shake_hands(self, headers: Mapping[str, str]) -> int:
        """Ask for the WebSocket with these headers alone; returns the status, 101 for yes."""
        asked = {
            **headers,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version": "13",
        }
        return self.request("GET", api("/watch"), asked).status

    async def connect(self) -> WebSocketClientConnection:
        """Open the WebSocket with the token."""
        url = f"ws://127.0.0.1:{self.port}{api('/watch')}"
        return await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {TOKEN}"}))

    def watching(self, use: Callable[[WebSocketClientConnection], Awaitable[T]]) -> T:
        """Run a coroutine with an open socket."""

        async def run() -> T:
            socket = await self.connect()
            try:
                return await use(socket)
            finally:
                await closed(socket)

        return asyncio.run(run())


async def closed(socket: WebSocketClientConnection) -> None:
    """Close a WebSocket, and wait until it is. Python warns of one that is left open."""
    open_still = socket.close_code is None  # else the server has closed it
    socket.close()
    if open_still:
        while await asyncio.wait_for(socket.read_message(), 30) is not None:
            pass  # on its way when it was closed


def api(path: str) -> str:
    return f"{BASE}jupyter-dist/api{path}"


def fill(path: str, **values: str) -> str:
    """`/runs/{id}` with its names replaced."""
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], path)
