"""The driver's side of a session on one host: the files of cells, and messages to and from the ranks.

The agent's side is agent/session_ranks.py. Messages are numbered, and repeated after a lost connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from ..worker.host.os_errors import reason
from .arrivals import Arrivals
from .links.link import Link
from .staged_files import Shipped

__all__ = ["HostCells"]

_PIECE = 1 << 17
"""The agent answers each piece. On a slow line these answers show that the agent lives."""
_MOST_WAITING = 1 << 20
"""Bytes of files that wait in the link. Pings and messages for the ranks wait behind them."""


@dataclass
class _Staging:
    """A cell whose files the host receives, and the ranks that run the cell there."""

    cell: str
    files: Sequence[Shipped]
    ranks: Sequence[int]
    next: int = 0
    """The index of the present file."""
    offset: int = 0
    asked: bool = False
    """Whether this connection has sent all files."""
    open: IO[bytes] | None = field(default=None, repr=False)

    def restart(self) -> None:
        self.close()
        self.next = self.offset = 0
        self.asked = False

    def close(self) -> None:
        if self.open is not None:
            self.open.close()
            self.open = None

    def piece(self) -> tuple[dict[str, Any], bytes] | None:
        """Return the next piece of the files; None after the last one. Raises OSError."""
        if self.next == len(self.files):
            return None
        file = self.files[self.next]
        if isinstance(file.content, bytes):
            data = file.content[self.offset : self.offset + _PIECE]
        else:
            self.open = self.open or file.content.open("rb")
            data = self.open.read(_PIECE)
        header = {"do": "file", "cell": self.cell, "path": file.path, "offset": self.offset}
        self.offset += len(data)
        if len(data) < _PIECE:
            self.close()
            self.next, self.offset = self.next + 1, 0
        return header, data


class HostCells:
    """The session's part of a host. `arrivals`: the files of the newest cells, by the ids of their runs."""

    def __init__(self, link: Link, arrivals: Mapping[str, Arrivals]) -> None:
        self._link, self._arrivals = link, arrivals
        self._agent = ""
        self._is_met = False
        """Whether this connection's agent has said who it is, and so which messages it has."""
        self._heard = self._number = 0
        self._unconfirmed: deque[dict[str, Any]] = deque()
        self._staging: deque[_Staging] = deque()
        self.ready: dict[str, str | None] = {}
        """The present cell, once this host can run it. With a reason, if the host cannot."""
        self.arrived: list[tuple[str, dict[str, Any]]] = []
        """Messages of the ranks: the id of the rank's process, and the message. Its reader empties it."""
        self.memory: dict[str, int | None] = {}
        """The bytes of memory of each rank, by the id of its process."""

    def hello(self) -> dict[str, Any]:
        """Return what the agent needs to know at the beginning of a connection."""
        self._is_met = False
        have = {cell: arrivals.have() for cell, arrivals in self._arrivals.items()}
        return {"session": {"agent": self._agent, "heard": self._heard, "cells": have}}

    def connected(self, facts: Mapping[str, Any]) -> None:
        """Send again what the agent lacks. `facts`: what the agent has reported."""
        told = facts.get("session")
        if told is None:
            return  # a run without a session
        if told["agent"] != self._agent:
            # The processes of an earlier agent have ended, and with them those who would read the messages.
            self._agent, self._heard, self._number = told["agent"], 0, 0
            self._unconfirmed.clear()
        self._is_met = True
        self._confirm(int(told["got"]))
        for message in self._unconfirmed:
            self._link.send(message)
        for staging in self._staging:
            staging.restart()

    def message(self, process: str, message: Mapping[str, Any]) -> None:
        """Send a message to a rank now, or when the host is connected again."""
        self._send({"do": "message", "process": process, "message": dict(message)})

    def tell(self, cell: str, path: str, text: str) -> None:
        """Replace a small file of a cell now, or when the host is connected again."""
        self._send({"do": "tell cell", "cell": cell, "path": path, "text": text})

    def kill(self, process: str) -> None:
        """Kill a rank with its process group now, or when the host is connected again."""
        self._send({"do": "kill", "process": process})

    def _send(self, header: dict[str, Any]) -> None:
        self._number += 1
        numbered = {**header, "number": self._number}
        self._unconfirmed.append(numbered)
        if self._is_met:  # else `connected` sends it, and drops it for the ranks of an earlier agent
            self._link.send(numbered)

    def stage(self, cell: str, files: Sequence[Shipped], ranks: Sequence[int]) -> None:
        """Begin to send the files of a cell. `ready` has the cell when the host has them."""
        self.close()  # a cell that has ended before its files were there
        self.ready.clear()
        self._staging.append(_Staging(cell, files, ranks))

    def advance(self) -> None:
        """Send the next pieces of the files, until the link has enough to send."""
        while self._staging and self._is_met and self._link.up and self._link.waiting < _MOST_WAITING:
            staging = next((each for each in self._staging if not each.asked), None)
            if staging is None:
                return
            try:
                piece = staging.piece()
            except OSError as error:
                self._end_staging(staging.cell, f"the cell's folder here cannot be read: {reason(error)}")
                continue
            if piece is not None:
                self._link.send(*piece)
            else:
                staging.asked = True
                ready = {"do": "ready", "cell": staging.cell, "ranks": list(staging.ranks)}
                self._link.send({**ready, "follows": list(self._arrivals)})

    def take(self, header: Mapping[str, Any]) -> None:
        """Process a frame of the agent."""
        kind = header["is"]
        if kind == "message":
            number = int(header["number"])
            if number > self._heard:
                self._heard = number
                self.arrived.append((str(header["process"]), header["message"]))
            self._link.send({"do": "heard", "number": self._heard})
        elif kind == "got":
            self._confirm(int(header["number"]))
        elif kind == "ready":
            why = header["why"]
            self._end_staging(str(header["cell"]), why and f"its files cannot be written: {why}")

    def _end_staging(self, cell: str, why: str | None) -> None:
        for staging in [each for each in self._staging if each.cell == cell]:
            staging.close()
            self._staging.remove(staging)
            self.ready[cell] = why

    def _confirm(self, number: int) -> None:
        while self._unconfirmed and self._unconfirmed[0]["number"] <= number:
            self._unconfirmed.popleft()

    def close(self) -> None:
        """Stop sending files. Repeatable."""
        for staging in self._staging:
            staging.close()
        self._staging.clear()
