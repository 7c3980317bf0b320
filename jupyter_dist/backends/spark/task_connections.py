"""The connections of tasks to this machine. Each side has proved that it has the key."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from .barrier_task import END, HOST, WAIT, proof, receive

__all__ = ["Listener"]

_GREETING_S = 10.0
_MOST_GREETED = 256
"""Largest number of connections without a proof. Further connections have to wait."""
_MOST_TOLD = 1 << 16


class Listener:
    """Accepts connections in threads of its own. A task's newest connection replaces its earlier ones."""

    def __init__(self, address: str, bind: str, port: int = 0) -> None:
        """`address`: this machine's address for the tasks. `bind`: the local address to listen on.

        Raises OSError.
        """
        self.key = secrets.token_bytes(32)
        self._listener = self._bound(bind, port)
        self.address = address, int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._greeting = threading.BoundedSemaphore(_MOST_GREETED)
        self._tasks: dict[int, dict[str, Any]] = {}
        self._free: dict[int, socket.socket] = {}
        """Connections that have received no order other than WAIT."""
        self._ended = False
        threading.Thread(target=self._accept, name="jupyter-dist-listener", daemon=True).start()

    @staticmethod
    def _bound(bind: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        try:
            return socket.create_server((bind, port), family=family)
        except OSError:
            # The address is not one of this machine's interfaces, for example behind NAT.
            if bind in ("", "0.0.0.0", "::"):
                raise
            return socket.create_server(("", port))

    def tasks(self) -> dict[int, Mapping[str, Any]]:
        """Return the facts that each connected task has sent, by its partition."""
        with self._lock:
            return dict(self._tasks)

    def take(self, partition: int, gpus: Sequence[str]) -> socket.socket | None:
        """Return the connection of a task, and order it to run the stage program. None: no connection.

        `gpus`: the GPUs of all tasks on the task's machine. Spark tells each task only its own.
        """
        with self._lock:
            connection = self._free.pop(partition, None)
        if connection is None:
            return None
        told = json.dumps(list(gpus)).encode()
        try:
            connection.sendall(HOST + len(told).to_bytes(4, "big") + told)
        except OSError:
            connection.close()
            return None
        return connection

    def end(self) -> None:
        """Order every task to end, also those that connect later. Repeatable."""
        with self._lock:
            self._ended = True
            free, self._free = self._free, {}
        for connection in free.values():
            self._dismiss(connection)

    def close(self) -> None:
        """Stop accepting connections."""
        self.end()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # this wakes the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._greeting.acquire()
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(_GREETING_S)
            self._park(self._proved(connection), connection)
        except (OSError, ValueError, KeyError):
            connection.close()  # not one of our tasks, or closed again
        finally:
            self._greeting.release()

    def _proved(self, connection: socket.socket) -> dict[str, Any]:
        ours = os.urandom(32)
        connection.sendall(ours)
        theirs, shown = receive(connection, 32), receive(connection, 32)
        size = int.from_bytes(receive(connection, 4), "big")
        if size > _MOST_TOLD:
            raise ValueError(f"{size} bytes")
        told = receive(connection, size)
        if not hmac.compare_digest(shown, proof(self.key, b"task", ours, theirs, told)):
            raise ValueError("it does not have the key")
        about: dict[str, Any] = json.loads(told)
        connection.sendall(proof(self.key, b"driver", theirs))
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return about

    def _park(self, about: dict[str, Any], connection: socket.socket) -> None:
        partition = int(about["partition"])
        connection.sendall(WAIT)
        with self._lock:
            ended = self._ended
            before = None if ended else self._free.pop(partition, None)
            if not ended:
                self._tasks[partition] = about
                self._free[partition] = connection
        if before is not None:
            before.close()
        if ended:
            self._dismiss(connection)

    @staticmethod
    def _dismiss(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(END)
        connection.close()
