"""A flood behind a real Jupyter server with its default limits: bounded output, a whole log."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_dist import folder as folders
from jupyter_dist.conformance.ports import take_port
from jupyter_dist.record import reader
from tests.rigs.server_process import closed

TOKEN = "t"
FLOOD = """%%distribute -np 2
for i in range(200_000):
    print("line", i, "of the flood")
"""


@pytest.fixture
def server(tmp_path: Path, wait_for: Callable[..., Any]) -> Iterator[int]:
    """A Jupyter server as `jupyter server` starts it; returns its port. Only the token is ours."""
    port = take_port()
    log = tmp_path / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyter_server", "--no-browser", f"--port={port}"),
                *("--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"),
                *(["--allow-root"] if os.geteuid() == 0 else []),
            ],
            cwd=tmp_path,
            stdout=out,
            stderr=out,
        )

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={TOKEN}", timeout=5):
                return True
        except OSError:
            return False

    try:
        wait_for(answers, "the server")
        yield port
    finally:
        process.terminate()
        process.wait(20)


async def execute(socket_: WebSocketClientConnection, code: str) -> tuple[list[dict[str, Any]], int]:
    """Run a cell; returns its messages and the bytes that came for them."""
    msg_id = uuid.uuid4().hex
    header = {
        "msg_id": msg_id,
        "msg_type": "execute_request",
        "session": "s",
        "username": "",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    await socket_.write_message(json.dumps(message))
    messages, size = [], 0
    while True:
        data = await asyncio.wait_for(socket_.read_message(), 90)
        assert data is not None, "the server closed the connection"
        received = json.loads(data)
        if received.get("parent_header", {}).get("msg_id") != msg_id:
            continue
        size += len(data)
        messages.append(received)
        if received["msg_type"] == "status" and received["content"]["execution_state"] == "idle":
            return messages, size


async def flood(port: int) -> tuple[list[dict[str, Any]], int]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/kernels", b"{}", {"Authorization": f"token {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        kernel = json.load(answer)["id"]
    url = f"ws://127.0.0.1:{port}/api/kernels/{kernel}/channels?session_id=s&token={TOKEN}"
    connection = await websocket_connect(url, max_message_size=1 << 30)
    try:
        await execute(connection, "%load_ext jupyter_dist")
        return await execute(connection, FLOOD)
    finally:
        await closed(connection)


def saved_outputs(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the notebook file would keep: displays as last updated, streams, results."""
    kept: dict[str, dict[str, Any]] = {}
    for number, message in enumerate(messages):
        content = message["content"]
        kind = message["msg_type"]
        if kind in ("stream", "display_data", "execute_result", "error"):
            kept[content.get("transient", {}).get("display_id", str(number))] = content
        elif kind == "update_display_data":
            kept[content["transient"]["display_id"]] = content
    return list(kept.values())


def test_a_flood_trips_no_limit_and_is_whole_in_the_log(server: int) -> None:
    messages, size = asyncio.run(flood(server))
    assert not any(message["msg_type"] == "error" for message in messages), messages
    text = json.dumps(messages)
    assert "rate exceeded" not in text
    assert size < 1_000_000
    saved = saved_outputs(messages)
    assert any("succeeded" in json.dumps(output) for output in saved)
    assert len(json.dumps(saved)) < 200_000
    (run,) = folders.runs()
    whole = "".join(f"line {i} of the flood\n" for i in range(200_000)).encode()
    assert [reader.output(run, rank) == whole for rank in (0, 1)] == [True, True]
