"""The transport to the agent on one Ray node: a pipe over TCP or over the actor's methods."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ...hosts.links.link import LinkError
from ...hosts.links.stream import Pipe
from .node_actor import PIECE, WORD, proof

__all__ = ["ActorTransport", "ending_of"]

_DIAL_S = 3.0
_CALL_S = 30.0
_WAIT_S = 5.0
"""Longest time in seconds that a `receive` call waits at the actor for data."""
_CALLS_DOWN, _CALLS_UP = 4, 16
"""Numbers of simultaneous calls. There are several, because each call takes some milliseconds."""


class ActorTransport:
    """Creates pipes to one node actor. TCP is tried first: its bytes bypass Ray and the actor.

    If no TCP connection succeeds, the actor's methods carry the bytes. They work wherever Ray itself does.
    """

    def __init__(self, host: str, actor: Callable[[], Any]) -> None:
        """`actor`: returns the handle of the node actor. May block, and raise what Ray raises."""
        self._host, self._actor = host, actor
        self._lock = threading.Lock()
        self._ready: Pipe | None = None
        self._dialling = False
        self._by_methods = False
        self._closed = False
        self.why: str | None = None
        """Why the last attempt failed."""

    @property
    def ready(self) -> bool:
        return self._ready is not None

    def dial(self) -> None:
        """Begin to create a pipe, unless one is ready or in progress. Does not wait."""
        with self._lock:
            if self._dialling or self._ready is not None or self._closed:
                return
            self._dialling = True
        threading.Thread(target=self._dial, name=f"dial {self._host}", daemon=True).start()

    def take(self) -> Pipe:
        """Return the pipe that is ready. If none is ready, begin to create one and raise LinkError (busy)."""
        with self._lock:
            pipe, self._ready = self._ready, None
        if pipe is None:
            why = self.why
            self.dial()
            raise LinkError(why or "the connection through Ray is being made", busy=True)
        return pipe

    def close(self) -> None:
        """Stop creating pipes. Repeatable."""
        with self._lock:
            pipe, self._ready, self._closed = self._ready, None, True
        if pipe is not None:
            pipe.close()

    def _dial(self) -> None:
        pipe, why = None, None
        try:
            actor = self._actor()
            pipe = (None if self._by_methods else self._by_tcp(actor)) or self._through_actor(actor)
        except Exception as error:  # Ray raises many kinds; the link tries again
            why = ending_of(error)
        with self._lock:
            self._dialling = False
            self.why = why
            if not self._closed:
                self._ready, pipe = pipe, None
        if pipe is not None:
            pipe.close()

    def _by_tcp(self, actor: Any) -> Pipe | None:
        import ray

        key = secrets.token_bytes(32)
        address, port = ray.get(actor.listen.remote(key), timeout=_CALL_S)
        try:
            connection = socket.create_connection((address, port), timeout=_DIAL_S)
            try:
                _introduce(connection, key)
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            self._by_methods = True
            print(
                f"host {self._host}: {address} cannot be connected to ({error}): through Ray's actors",
                flush=True,
            )
            return None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Pipe.of_socket(connection, WORD)

    def _through_actor(self, actor: Any) -> Pipe:
        import ray

        session = secrets.token_hex(8)
        ray.get(actor.open.remote(session), timeout=_CALL_S)
        near, far = socket.socketpair()
        over = threading.Event()
        for carry in (_carry_down, _carry_up):
            threading.Thread(target=carry, args=(actor, session, far, over), daemon=True).start()
        return Pipe.of_socket(near, WORD)


def _introduce(connection: socket.socket, key: bytes) -> None:
    """Prove to the other side that we have the key, and check its proof. Raises OSError."""
    theirs, own = _read(connection, 32), secrets.token_bytes(32)
    connection.sendall(own + proof(key, b"driver", theirs, own))
    if not secrets.compare_digest(_read(connection, 32), proof(key, b"node", own, theirs)):
        raise ConnectionAbortedError("somebody else answers there")


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionAbortedError("it was closed")
        data += more
    return data


def _carry_down(actor: Any, session: str, far: socket.socket, over: threading.Event) -> None:
    """Copy the stage program's output to our end.

    Ray may begin calls of an asynchronous actor in any order. The result of a later call may therefore arrive
    first.
    """
    import ray

    received, ends_at = 0, None
    early: dict[int, bytes] = {}
    try:
        under_way = deque(actor.receive.remote(session, _WAIT_S) for _ in range(_CALLS_DOWN))
        while ends_at != received and not over.is_set():
            offset, data = ray.get(under_way.popleft())
            if data is None:
                ends_at = offset
            elif data:
                early[offset] = data
            while (piece := early.pop(received, None)) is not None:
                received += len(piece)
                far.sendall(piece)
            under_way.append(actor.receive.remote(session, _WAIT_S))
    except Exception as error:  # our end is closed, and the link makes another pipe
        if not over.is_set():
            print(f"the way through Ray's actors has ended: {ending_of(error)}", flush=True)
    with contextlib.suppress(OSError):
        far.shutdown(socket.SHUT_RDWR)
    if over.is_set():
        far.close()
    over.set()


def _carry_up(actor: Any, session: str, far: socket.socket, over: threading.Event) -> None:
    """Copy the input at our end to the stage program."""
    import ray

    sent = 0
    with contextlib.suppress(Exception):
        under_way: deque[Any] = deque()
        while data := far.recv(PIECE):
            under_way.append(actor.send.remote(session, sent, data))
            sent += len(data)
            if len(under_way) >= _CALLS_UP:
                ray.get(under_way.popleft())
    with contextlib.suppress(OSError):
        far.shutdown(socket.SHUT_RDWR)
    if over.is_set():
        far.close()
    over.set()


def ending_of(error: BaseException) -> str:
    """Return Ray's error about a node actor as one line. Ray's own text has a dozen lines, with ids."""
    text = str(error)
    for before in ("Worker exit detail: ", "The actor is dead because ", "The actor died because "):
        place = text.find(before)
        if place >= 0:
            text = text[place + len(before) :]
            break
    line = " ".join(text.split())
    for after in (" Placement group id:", " Worker exit type:", " Some common causes"):
        line = line.partition(after)[0]
    return line[:300] or type(error).__name__
