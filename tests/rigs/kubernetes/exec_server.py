"""A WebSocket over a plain HTTP handler, and exec over it as a kubelet serves it: v4 and v5.channel.k8s.io.

The real one:
https://github.com/kubernetes/kubernetes/tree/master/staging/src/k8s.io/kubelet/pkg/cri/streaming
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import os
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

__all__ = ["serve_exec"]

_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255
_MOST_BYTES = 32 << 20
"""Of a message: golang.org/x/net/websocket takes no larger one."""
_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class _Closed(Exception):
    pass


class _WebSocket:
    def __init__(self, handler: http.server.BaseHTTPRequestHandler, protocols: Sequence[str]) -> None:
        offered = [one.strip() for one in handler.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        protocol = next((one for one in protocols if one in offered), None)
        if handler.headers.get("Upgrade", "").lower() != "websocket" or protocol is None:
            handler.send_error(400)
            raise _Closed
        key = handler.headers["Sec-WebSocket-Key"] + _MAGIC
        handler.send_response(101)
        for name, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()),
            ("Sec-WebSocket-Protocol", protocol),
        ):
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.flush()
        handler.close_connection = True
        self.protocol = protocol
        self._read, self._connection, self._lock = handler.rfile, handler.connection, threading.Lock()

    def receive(self) -> bytes:
        """The next message. Pings are answered here."""
        parts: list[bytes] = []
        while True:
            try:
                final, kind, data = self._frame()
            except (OSError, ValueError):
                raise _Closed from None
            if kind == 8:
                with contextlib.suppress(_Closed):
                    self._send(8, data[:2])
                raise _Closed
            if kind == 9:
                self._send(10, data)
            elif kind in (0, 1, 2):
                parts.append(data)
                if final:
                    return b"".join(parts)

    def _frame(self) -> tuple[bool, int, bytes]:
        first, second = self._exactly(2)
        size = second & 127
        if size == 126:
            (size,) = struct.unpack("!H", self._exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._exactly(8))
        if size > _MOST_BYTES:
            raise _Closed
        mask = self._exactly(4) if second & 128 else b""
        data = self._exactly(size)
        if mask and data:
            repeated = (mask * (size // 4 + 1))[:size]
            mixed = int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")
            data = mixed.to_bytes(size, "little")
        return bool(first & 128), first & 15, data

    def _exactly(self, size: int) -> bytes:
        data = self._read.read(size)
        if len(data) < size:
            raise _Closed
        return data

    def send(self, channel: int, data: bytes = b"") -> None:
        self._send(2, bytes([channel]) + data)

    def _send(self, kind: int, data: bytes) -> None:
        size = len(data)
        head = bytes([128 | kind])
        if size < 126:
            head += bytes([size])
        elif size < 65536:
            head += struct.pack("!BH", 126, size)
        else:
            head += struct.pack("!BQ", 127, size)
        with self._lock:
            try:
                self._connection.sendall(head + data)
            except OSError:
                raise _Closed from None

    def close(self) -> None:
        with contextlib.suppress(_Closed):
            self._send(8, struct.pack("!H", 1000))


def serve_exec(
    handler: http.server.BaseHTTPRequestHandler,
    argv: Sequence[str],
    query: Mapping[str, str],
    protocols: Sequence[str],
) -> None:
    """Run it, with its streams over the connection. When that breaks, stdin gets its end and the process
    lives on, as with containerd."""
    try:
        socket = _WebSocket(handler, protocols)
    except _Closed:
        return

    def wanted(name: str) -> int:
        return subprocess.PIPE if query.get(name) in ("1", "true") else subprocess.DEVNULL

    if query.get("output") in ("1", "true"):
        with contextlib.suppress(_Closed):
            socket.send(_STDOUT)  # the real one says so that it is connected
    process = subprocess.Popen(
        argv,
        stdin=wanted("input"),
        stdout=wanted("output"),
        stderr=wanted("error"),
        bufsize=0,
        start_new_session=True,
    )
    pumps = [
        threading.Thread(target=_carry_out, args=(stream, channel, socket), daemon=True)
        for stream, channel in ((process.stdout, _STDOUT), (process.stderr, _STDERR))
        if stream is not None
    ]
    for pump in (*pumps, threading.Thread(target=_carry_in, args=(process.stdin, socket), daemon=True)):
        pump.start()
    code = process.wait()
    for pump in pumps:
        pump.join()
    with contextlib.suppress(_Closed):
        socket.send(_ERROR, json.dumps(_status(128 - code if code < 0 else code)).encode())
    socket.close()


def _carry_out(stream: IO[bytes], channel: int, socket: _WebSocket) -> None:
    there = True
    while data := os.read(stream.fileno(), 32768):
        if there:
            try:
                socket.send(channel, data)
            except _Closed:
                there = False  # what is still written is thrown away


def _carry_in(stream: IO[bytes] | None, socket: _WebSocket) -> None:
    try:
        while True:
            message = socket.receive()
            if stream is None or not message:
                continue
            if message[0] == _STDIN:
                data = message[1:]
                while data:
                    data = data[os.write(stream.fileno(), data) :]
            elif message[:2] == bytes([_CLOSE, _STDIN]) and socket.protocol.startswith("v5"):
                stream.close()
                stream = None
    except (_Closed, OSError):
        pass
    finally:
        if stream is not None:
            stream.close()


def _status(code: int) -> dict[str, object]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
