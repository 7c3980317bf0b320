"""The connections of kernels and ranks to a session's supervisor."""

from __future__ import annotations

import contextlib
import selectors
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...worker.session import channel
from ..status_writer import log

__all__ = ["Answers", "Connections"]

_SEND_S = 10.0
"""How long a process at the other end may take to read a message."""


class Connections:
    """The open connections of a session.

    `path`: the session's folder. `news`: another descriptor that wakes the supervisor. `take`: processes a
    message, with its connection and what is known of the other end, such as its `rank`.
    """

    def __init__(
        self,
        path: Path,
        news: int | None,
        take: Callable[[channel.Channel, dict[str, Any], Mapping[str, Any]], None],
    ) -> None:
        self._take = take
        self._selector = selectors.DefaultSelector()
        self._listener = channel.listen(path)
        self._selector.register(self._listener, selectors.EVENT_READ)
        if news is not None:
            self._selector.register(news, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Return a descriptor that is readable when something has arrived."""
        return self._selector.fileno()

    def look(self) -> None:
        """Accept new connections, and process the messages that have arrived. Never blocks."""
        for key, _ in self._selector.select(0):
            if key.fileobj is self._listener:
                self._accept()
            elif key.data is not None:
                self._read(key.fileobj, key.data)

    def _accept(self) -> None:
        link = channel.accept(self._listener, _SEND_S)
        if link is not None:
            with contextlib.suppress(OSError):
                self._selector.register(link, selectors.EVENT_READ, {"rank": None})

    def _read(self, link: Any, data: dict[str, Any]) -> None:
        try:
            messages = link.arrived()
        except (OSError, ValueError):
            messages = None
        if messages is None:
            self.forget(link)
            return
        for message in messages:
            try:
                self._take(link, data, message)
            except Exception:  # a message of another version must not end the session
                log(f"cannot process a message:\n{traceback.format_exc()}")
                self.forget(link)
                return

    def forget(self, link: Any) -> None:
        """Close a connection."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(link)
        link.close()

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()


class Answers:
    """Answers to kernels, which are sent after the ranks have received the cell."""

    def __init__(self) -> None:
        self._waiting: list[tuple[channel.Channel, Mapping[str, Any]]] = []

    def add(self, link: channel.Channel, answer: Mapping[str, Any]) -> None:
        self._waiting.append((link, answer))

    def replace(self, run: str, answer: Mapping[str, Any]) -> None:
        """Replace the answer to the kernel that has sent this run, unless it is sent."""
        self._waiting = [(link, answer if old.get("run") == run else old) for link, old in self._waiting]

    def send(self) -> None:
        while self._waiting:
            link, answer = self._waiting.pop(0)
            with contextlib.suppress(OSError):
                link.send(answer)
