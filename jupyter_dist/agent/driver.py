"""The agent's connection to its driver: frames that wait to be sent, and frames that have arrived."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from typing import Any

from .frames import Frame, FrameError, Frames, encode

__all__ = ["Driver"]

_MOST_WAITING = 1 << 20
"""Maximum bytes that wait for the connection. Beyond, the agent leaves new output in the files."""
_AT_ONCE = 1 << 18


class Driver:
    """At most one connection. The newest connection replaces the earlier one. Never blocks."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self.socket: socket.socket | None = None
        self._frames = Frames()
        self._out: deque[memoryview] = deque()
        self._waiting = 0

    @property
    def is_full(self) -> bool:
        """Return whether so much waits to be sent that the agent should add nothing."""
        return self._waiting >= _MOST_WAITING

    @property
    def waits(self) -> bool:
        """Return whether something waits to be sent."""
        return bool(self._out)

    def take(self, connection: socket.socket) -> None:
        """Use a new connection. The caller has hung up the earlier one."""
        connection.setblocking(False)
        self.socket, self._frames = connection, Frames()
        self._selector.register(connection, selectors.EVENT_READ)

    def hang_up(self) -> None:
        """Close the connection, if there is one. What waits to be sent is dropped."""
        if self.socket is None:
            return
        self._selector.unregister(self.socket)
        self.socket.close()
        self.socket = None
        self._out.clear()
        self._waiting = 0

    def receive(self) -> list[Frame] | None:
        """Return the frames that have arrived; None if the connection is lost. Raises FrameError."""
        assert self.socket is not None
        try:
            data = self.socket.recv(_AT_ONCE)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        try:
            return self._frames.feed(data)
        except FrameError as error:
            raise FrameError(f"the driver sent {error}") from None

    def say(self, header: dict[str, Any], body: bytes = b"") -> bool:
        """Send a frame now or later. Returns whether the connection still exists."""
        if self.socket is None:
            return False
        for part in (encode(header, len(body)), body):
            if part:
                self._out.append(memoryview(part))
                self._waiting += len(part)
        return self.send()

    def send(self) -> bool:
        """Send what waits, as far as possible now. Returns whether the connection still exists."""
        while self._out and self.socket is not None:
            try:
                done = self.socket.send(self._out[0])
            except BlockingIOError:
                break
            except OSError:
                return False
            self._waiting -= done
            if done == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][done:]
        if self.socket is not None:
            write = selectors.EVENT_WRITE if self._out else 0
            self._selector.modify(self.socket, selectors.EVENT_READ | write)
        return self.socket is not None
