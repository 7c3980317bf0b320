"""One request over plain HTTP to a server of this machine."""

from __future__ import annotations

import http.client
from collections.abc import Mapping

__all__ = ["ask"]


def ask(
    port: int, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Send a request exactly as given; returns status, headers and body. Raises OSError, HTTPException."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, target, body, dict(headers or {}))
        # Closed by itself: where the server ends connections, the connection knows it no more, and a
        # server that is killed in the midst of an answer would leave the socket to the garbage collector.
        with connection.getresponse() as answer:
            return answer.status, answer.headers, answer.read()
    finally:
        connection.close()
