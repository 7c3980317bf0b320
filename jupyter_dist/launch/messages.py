"""JSON messages between the kernel, its template and a spare supervisor, over a socket."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["is_readable", "receive", "send"]


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


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


def is_readable(source: _HasFileno, seconds: float = 0.0) -> bool:
    """Return whether something has arrived, or the other end has closed, within this time."""
    poll = select.poll()  # `select.select` refuses the descriptors of a kernel with more than 1024 files
    poll.register(source, select.POLLIN)
    return bool(poll.poll(1e3 * seconds))


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            return None
        data += chunk
    return data
