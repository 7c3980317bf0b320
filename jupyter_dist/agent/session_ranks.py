"""The ranks of a session on this host: their connections, their messages, and the files of their cells.

The agent listens in the stage folder, where the ranks of a session connect as to a session's supervisor on
their own machine (worker/session/channel.py). It passes their messages on to the driver, and the driver's to
them. Both sides number these messages and repeat them after a lost connection, so that none is lost or
processed twice. The files of a cell are in a folder of the cell, which is shaped like a run's:

    STAGE/cells.sock        where the ranks connect
    STAGE/cells/RUN/…       the payload and modules of a cell, and what the ranks write in it
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..worker import layout, listing
from ..worker.host.os_errors import reason
from ..worker.host.usage import HostUsage, memory_bytes
from ..worker.line_file import write_all
from ..worker.session import channel, place
from .children import Child, Children
from .frames import Frame
from .line_times import LineTimes
from .notices import write_notice
from .tail import SAME_S, Tails, checkpoints

__all__ = ["FOLLOWED", "SessionRanks"]

_SEND_S = 2.0
"""How long a rank may take to read a message: shorter than a driver waits for this agent's answer."""
FOLLOWED = 4
"""The number of the newest cells whose files the agent sends. A thread may outlive its cell."""
_SELDOM = 16
_HOLD_S = 10.0
"""How long the end of a cell is not reported if the rank's files cannot be read."""


class _Cell:
    """The files of one cell on this host. `path`: the cell's folder."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tails, self.times, self.usage = Tails(path), LineTimes(path), HostUsage(path)
        self.sent: dict[str, float] = {}
        """Checkpoints that were sent: path → modification time."""
        self.received: dict[str, float] = {}
        """Those of them that the driver surely has."""
        self.trouble: str | None = None
        """Why the driver's files cannot be written here."""
        self.held_since: float | None = None

    def checkpoints(self) -> Iterator[Frame]:
        """Yield the checkpoints that have changed since the last call."""
        for header, body in checkpoints(self.path, self.sent):
            self.sent[os.path.join("run", layout.CHECKPOINTS, header["path"])] = header["time"]
            yield header, body

    def remove_received(self) -> None:
        """Remove the checkpoints that the driver has. The folders stay: a later cell may write there."""
        for path, when in self.received.items():
            place = os.path.join(self.path, os.path.relpath(path, "run"))
            with contextlib.suppress(OSError):
                if abs(os.stat(place).st_mtime - when) <= SAME_S:
                    os.unlink(place)


class SessionRanks:
    """The session's part of an agent. One loop, no threads."""

    def __init__(self, stage: str, children: Children, selector: selectors.BaseSelector) -> None:
        self._root = os.path.join(stage, place.CELLS)
        self._children, self._selector = children, selector
        self._links: dict[str, channel.Channel] = {}
        """The connections of the ranks by the ids of their processes."""
        self._cells: dict[str, _Cell] = {}
        """The newest cells, oldest first."""
        self._kept: set[str] = set()
        """The ids of the cells with a checkpoint that the driver could not write. It stays here."""
        self._busy: set[str] = set()
        """The ids of the processes that run a cell."""
        self._me = f"{os.getpid()}.{time.time()}"
        self._got = 0
        """The number of the driver's last message that was processed."""
        self._number = self._told = 0
        """The numbers of the last message for the driver, and of the last one that this connection has."""
        self._news: list[tuple[int, dict[str, Any]]] = []
        """The messages for the driver that the driver has not confirmed."""
        self._sent_before: dict[int, dict[str, dict[str, float]]] = {}
        """The checkpoints of each cell that were sent before a message, by the message's number."""
        self._ticks = 0
        self._listener = channel.listen(Path(stage))
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def is_busy(self) -> bool:
        """Return whether a rank runs a cell."""
        return bool(self._busy)

    @property
    def keeps_files(self) -> bool:
        """Return whether files stay here because the driver could not write them. The user knows the path."""
        return bool(self._kept)

    @property
    def handles_sigterm(self) -> bool:
        """Return whether a rank has set its own handler for SIGTERM in a cell that still runs."""
        if not (self._busy and self._cells):
            return False
        newest = list(self._cells.values())[-1].path
        ranks = [child.rank or 0 for child in self._children.running if child.id in self._busy]
        notes = (os.path.join(layout.rank_path(newest, 0, rank), layout.SIGTERM_HANDLER) for rank in ranks)
        return any(map(os.path.exists, notes))

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a new driver learns about this agent's messages."""
        return {"agent": self._me, "got": self._got}

    @property
    def memory(self) -> dict[str, int | None]:
        """Return the bytes of memory of each rank, by the id of its process."""
        return {child.id: memory_bytes(child.pid) for child in self._children.running}

    def restart(self, told: Mapping[str, Any]) -> None:
        """Begin again for a new connection. `told`: what the driver has of the cells' files and messages."""
        heard = int(told["heard"]) if told["agent"] == self._me else 0
        self._confirm(heard)
        self._told = heard
        self._sent_before.clear()
        have: Mapping[str, Mapping[str, int]] = told["cells"]
        for id_ in self._cells.keys() - have.keys():
            self._drop(id_)
        for id_ in have:
            if os.path.isdir(os.path.join(self._root, id_)):
                self._cell(id_)  # an earlier agent has ended in the middle of the cell
        for id_, cell in self._cells.items():
            cell.tails.restart(have[id_])
            cell.sent = dict(cell.received)

    def tick(self) -> None:
        """Measure the ranks, and note when the logs have grown. Call this often."""
        self._ticks += 1
        for cell in self._present():
            cell.times.tick()
        if self._busy and self._cells:
            list(self._cells.values())[-1].usage.tick(time.monotonic())

    def obey(self, wish: Mapping[str, Any], body: bytes) -> dict[str, Any] | None:
        """Process a frame of the driver. Returns the answer, if there is one."""
        do = wish["do"]
        if do == "file":
            self._write(wish, body)
            return {"is": "written"}  # the answer to a ping may be late, because files wait before the ping
        if do == "ready":
            return {"is": "ready", "cell": wish["cell"], "why": self._make_ready(wish)}
        elif do == "keep":
            self._kept.add(wish["cell"])
        elif do == "heard":
            self._confirm(wish["number"])
        elif do in ("message", "kill", "tell cell"):
            if wish["number"] > self._got:
                self._got = wish["number"]
                self._pass_on(wish)
            return {"is": "got", "number": self._got}
        return None

    def _confirm(self, number: int) -> None:
        """Note that the driver has all messages up to this number, and what was sent before them."""
        self._news = [each for each in self._news if each[0] > number]
        for each in [each for each in self._sent_before if each <= number]:
            for id_, sent in self._sent_before.pop(each).items():
                if id_ in self._cells:
                    self._cells[id_].received = sent

    def news(self) -> Iterator[Frame]:
        """Yield messages of the ranks, each after the files to which it refers, then other new output."""
        for number, header in list(self._news):
            if number <= self._told:
                continue
            message = header["message"]
            if "done" in message:
                cell = self._cells.get(message["of"])
                if cell is not None:
                    yield from self._files_of(message["of"], cell, header["rank"])
                    if self._holds(cell):
                        return
                for id_, each in list(self._cells.items()):  # a cell may write in an earlier cell's folder
                    yield from _marked(id_, each.checkpoints())
                self._sent_before[number] = {id_: dict(each.sent) for id_, each in self._cells.items()}
            self._told = number
            yield header, b""
        present = self._present()
        for id_, cell in list(self._cells.items()):
            if cell in present:
                yield from _marked(id_, cell.tails.pieces())

    def rest(self, child: Child) -> Iterator[Frame]:
        """Yield what a rank has written that has ended."""
        self._busy.discard(child.id)
        for id_, cell in list(self._cells.items()):
            if child.rank is not None:
                yield from self._files_of(id_, cell, child.rank)

    def _present(self) -> list[_Cell]:
        """Return the cells to look at now. Earlier ones rarely write."""
        cells = list(self._cells.values())
        return cells if self._ticks % _SELDOM == 0 else cells[-1:]

    @staticmethod
    def _files_of(id_: str, cell: _Cell, rank: int) -> Iterator[Frame]:
        cell.times.tick()
        yield from _marked(id_, cell.tails.rest(layout.rank_path("", 0, rank)))
        yield from _marked(id_, cell.checkpoints())

    @staticmethod
    def _holds(cell: _Cell) -> bool:
        """Return whether the cell's end has to wait, because files cannot be read now."""
        if cell.tails.trouble is None:
            cell.held_since = None
            return False
        cell.held_since = cell.held_since or time.monotonic()
        return time.monotonic() - cell.held_since < _HOLD_S

    def _write(self, wish: Mapping[str, Any], body: bytes) -> None:
        """Write a piece of a cell's file."""
        cell = self._cell(wish["cell"])
        path = os.path.join(cell.path, wish["path"])
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if wish["offset"] else os.O_TRUNC)
            fd = os.open(path, flags, 0o600)
            try:
                os.lseek(fd, wish["offset"], os.SEEK_SET)
                write_all(fd, body)
            finally:
                os.close(fd)
        except OSError as error:
            cell.trouble = cell.trouble or reason(error)

    def _make_ready(self, wish: Mapping[str, Any]) -> str | None:
        """Make the folders of the cell's ranks. Returns why the cell cannot run here."""
        cell = self._cell(wish["cell"])
        for old in self._cells.keys() - {wish["cell"], *wish["follows"]}:
            self._drop(old)
        try:
            for rank in wish["ranks"]:
                os.makedirs(layout.rank_path(cell.path, 0, rank), mode=0o700, exist_ok=True)
            os.makedirs(os.path.join(cell.path, layout.REQUESTS), mode=0o700, exist_ok=True)
        except OSError as error:
            cell.trouble = cell.trouble or reason(error)
        trouble, cell.trouble = cell.trouble, None
        return trouble

    def _cell(self, id_: str) -> _Cell:
        if id_ not in self._cells:
            self._cells[id_] = _Cell(os.path.join(self._root, id_))
            for old in list(self._cells)[:-FOLLOWED]:
                self._drop(old)
        return self._cells[id_]

    def _drop(self, id_: str) -> None:
        """Follow a cell no longer."""
        cell = self._cells.pop(id_)
        _remove_values(cell.path)
        if id_ not in self._kept:
            cell.remove_received()

    def close(self) -> None:
        """Remove what the driver has sent for its cells. The ranks have ended."""
        for cell in self._cells.values():
            _remove_values(cell.path)
            shutil.rmtree(os.path.join(cell.path, layout.MODULES), ignore_errors=True)

    def _pass_on(self, wish: Mapping[str, Any]) -> None:
        if wish["do"] == "tell cell":
            write_notice(os.path.join(self._root, wish["cell"]), wish["path"], wish["text"])
            return
        process = wish["process"]
        if wish["do"] == "kill":
            self._children.signal(kill=True, only=[process])
            return
        link = self._links.get(process)
        if link is None:
            return  # the rank has ended
        if wish["message"].get("do") == "cell":
            self._busy.add(process)
        try:
            link.send(wish["message"])
        except OSError:
            self._forget(process)  # the rank then ends, and its end is reported

    def _accept(self) -> None:
        link = channel.accept(self._listener, _SEND_S)
        if link is not None:
            with contextlib.suppress(OSError):
                self._selector.register(link, selectors.EVENT_READ, functools.partial(self._greet, link))

    def _greet(self, link: channel.Channel) -> None:
        """Read the first messages of a connection, which name the rank."""
        messages = _arrived(link)
        if messages == []:
            return
        first = messages[0] if messages else {}
        child = next((c for c in self._children.running if c.rank is not None and _is_from(c, first)), None)
        if child is None:
            self._selector.unregister(link)
            link.close()
            return
        self._links[child.id] = link
        self._selector.modify(link, selectors.EVENT_READ, functools.partial(self._read, child, link))
        self._keep(child, messages or [])

    def _read(self, child: Child, link: channel.Channel) -> None:
        messages = _arrived(link)
        if messages is None:
            self._forget(child.id)
        else:
            self._keep(child, messages)

    def _keep(self, child: Child, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self._number += 1
            header = {"is": "message", "number": self._number, "process": child.id, "rank": child.rank}
            self._news.append((self._number, {**header, "message": message}))
            if "done" in message:
                self._busy.discard(child.id)

    def _forget(self, process: str) -> None:
        link = self._links.pop(process, None)
        self._busy.discard(process)
        if link is not None:
            self._selector.unregister(link)
            link.close()


def _is_from(child: Child, message: Mapping[str, Any]) -> bool:
    return child.rank == message.get("rank") and child.pid == message.get("pid")


def _arrived(link: channel.Channel) -> list[dict[str, Any]] | None:
    try:
        return link.arrived()
    except (OSError, ValueError):
        return None


def _marked(cell: str, frames: Iterator[Frame]) -> Iterator[Frame]:
    for header, body in frames:
        yield {**header, "cell": cell}, body


def _remove_values(path: str) -> None:
    """Remove the payloads of a cell, but no modules: a rank may import one of them later."""
    for name in listing.names(path):
        if name.endswith((os.path.splitext(layout.PAYLOAD)[1], layout.BUFFERS)):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(path, name))
