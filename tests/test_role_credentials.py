"""The credentials of a container's role, which its platform gives out for a while."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.agent.stores import Credentials, StoreError


class Platform:
    """Gives out another key each time, good for `good_s`."""

    def __init__(self) -> None:
        self.good_s, self.asked, self.tokens = 3600.0, 0, list[str | None]()
        platform = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                platform.asked += 1
                platform.tokens.append(self.headers.get("authorization"))
                now = datetime.datetime.now(datetime.timezone.utc)
                until = now + datetime.timedelta(seconds=platform.good_s)
                told = {
                    "AccessKeyId": f"key-{platform.asked}",
                    "SecretAccessKey": "secret",
                    "Token": "session",
                    "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
                self.send_response(200 if self.path == "/role" else 404)
                self.end_headers()
                self.wfile.write(json.dumps(told).encode() if self.path == "/role" else b"none")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/role"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def platform() -> Iterator[Platform]:
    made = Platform()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_they_are_asked_for_once_and_anew_before_they_expire(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-file\n")
    environ = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": platform.url,
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
    }
    held = Credentials(environ)
    first = held.get()
    assert first["AWS_ACCESS_KEY_ID"] == "key-1"
    assert first["AWS_SESSION_TOKEN"] == "session"
    assert held.get() is first
    assert platform.tokens == ["of-file"]
    platform.good_s = 60.0  # less than is left to chance
    held = Credentials(environ)
    assert held.get()["AWS_ACCESS_KEY_ID"] == "key-2"
    assert held.get()["AWS_ACCESS_KEY_ID"] == "key-3"


def test_a_platform_that_is_away_costs_nothing_while_they_are_good(platform: Platform) -> None:
    platform.good_s = 60.0
    environ = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": platform.url}
    held = Credentials(environ)
    assert held.get()["AWS_ACCESS_KEY_ID"] == "key-1"
    environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = platform.url + "-gone"
    assert held.get()["AWS_ACCESS_KEY_ID"] == "key-1"
    with pytest.raises(StoreError, match="the role's credentials are not to be had"):
        Credentials(environ).get()


def test_the_environments_own_come_first() -> None:
    environ = {"AWS_ACCESS_KEY_ID": "own", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/role"}
    assert Credentials(environ).get() is environ
    assert Credentials({}).get() == {}, "none: requests are not signed"
