"""JSON messages between the kernel, its template and a spare supervisor, over a socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

__all__ = ["receive", "send"]


def send(sock: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message. Raises OSError."""
    data = json.dumps(message).encode()
    sock.sendall(len(data).to_bytes(4, "big") + data)


def receive(sock: socket.socket) -> dict[str, Any] | None:
    """Return the next message. None if the other end has closed. Blocks. Raises OSError."""
    head = _exactly(sock, 4)
    body = None if head is None else _exactly(sock, int.from_bytes(head, "big"))
    if body is None:
        return None
    message: dict[str, Any] = json.loads(body)
    return message


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            return None
        data += chunk
    return data
