"""JSON messages over a Unix socket in a session's folder, which only its owner can open.

A message is one line. Values never travel here: they are files in run folders. A socket's path has at most
108 bytes (https://man7.org/linux/man-pages/man7/unix.7.html). A longer one is shortened with a descriptor of
its folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import place

__all__ = ["Channel", "accept", "connect", "listen"]

_LONGEST_PATH = 100
_CHUNK = 1 << 16
_LARGEST = 64 << 20


class Channel:
    """One end of a connection. Only one thread reads. Writes of several threads must not overlap."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. Blocks while the other end does not read. Raises OSError."""
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; None if the other end has closed. Blocks. Raises OSError, ValueError."""
        while b"\n" not in self._rest:
            if not self._fill():
                return None
        return self._next()

    def arrived(self) -> list[dict[str, Any]] | None:
        """Return the messages that have arrived, after one read. None if the other end has closed."""
        if not self._fill():
            return None
        found = []
        while b"\n" in self._rest:
            found.append(self._next())
        return found

    def peer(self) -> tuple[int, int]:
        """Return the pid and the user id of the process at the other end. The user id is -1 if unknown."""
        option = getattr(socket, "SO_PEERCRED", None)
        if option is None:
            return 0, -1
        size = struct.calcsize("3i")
        pid, uid, _ = struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, option, size))
        return pid, uid

    def close(self) -> None:
        self.sock.close()

    def _fill(self) -> bool:
        try:
            chunk = self.sock.recv(_CHUNK)
        except ConnectionError:
            return False
        if len(self._rest) > _LARGEST:
            raise ValueError("a message has no end")
        self._rest += chunk
        return bool(chunk)

    def _next(self) -> dict[str, Any]:
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


def connect(folder: Path) -> Channel:
    """Connect to the session in this folder. Raises OSError if its supervisor does not listen."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder) as path:
            sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return Channel(sock)


def accept(listener: socket.socket, send_s: float) -> Channel | None:
    """Accept a connection of this user's processes. Returns None for any other, and if there is none.

    `send_s`: how long the process at the other end may take to read a message, in seconds.
    """
    try:
        sock, _ = listener.accept()
        sock.settimeout(send_s)
        link = Channel(sock)
        if link.peer()[1] in (-1, os.geteuid()):
            return link
        link.close()
    except OSError:
        pass
    return None


def listen(folder: Path) -> socket.socket:
    """Listen in this folder, in place of a socket that an earlier session has left. Raises OSError."""
    (folder / place.SOCKET).unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _with_private_mask(lambda: _bind(sock, folder))
        sock.listen(256)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind(sock: socket.socket, folder: Path) -> None:
    with _short(folder) as path:
        sock.bind(path)


def _with_private_mask(act: Callable[[], None]) -> None:
    before = os.umask(0o177)
    try:
        act()
    finally:
        os.umask(before)


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    path = str(folder / place.SOCKET)
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{place.SOCKET}"
    finally:
        os.close(fd)
