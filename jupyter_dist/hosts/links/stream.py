"""The stream link: frames over a byte pipe to a stage program, independent of the transport.

A transport opens the pipe. `ssh_transport.py` uses ssh; a backend may use a socket, the methods of an actor,
or a WebSocket. The link sends and receives frames over the pipe, and never blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from ...agent import stage_program as stage
from ...agent.frames import Frame, FrameError, Frames, encode
from ...worker.host.os_errors import reason
from ...worker.process_groups import poll
from .. import child_processes
from ..staged_files import Shipped
from .link import LinkError, Reach

__all__ = ["FunctionTransport", "Pipe", "StreamLink", "Transport", "by_pipe", "stage_program"]

_OPENING_TIMEOUT_S = 45.0
"""Longest silence while a connection is being opened: longer than ssh and nvidia-smi need."""
_SILENT_S = 6.0
"""Longest silence of an agent. An agent answers a ping every few seconds."""
_AT_ONCE = 8 << 20
_PIECE = 1 << 18
_F_SETPIPE_SZ = 1031


class Pipe:
    """A byte pipe to a stage program (agent/stage_program.py) at its other end."""

    def __init__(
        self,
        read: int,
        write: int,
        word: str,
        *,
        first: bytes = b"",
        said: int | None = None,
        held: Sequence[IO[bytes] | socket.socket] = (),
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """`word`: the stage program's argument, which marks its answer. `first`: bytes to write first.

        `said`: a descriptor with error output. `held`: the objects whose `close` closes the descriptors.
        `process`: the local process of the streams, which leads a process group.
        """
        self.read, self.write, self.said, self.word, self.first = read, write, said, word, first
        self.process = process
        self._held = held

    @classmethod
    def of_process(cls, process: subprocess.Popen[bytes], word: str, first: bytes = b"") -> Pipe:
        """Return the pipe of a process: its three streams. It must lead a session and use `bufsize=0`."""
        streams = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream is not None]
        into, out, said = (stream.fileno() for stream in streams)
        return cls(out, into, word, first=first, said=said, held=streams, process=process)

    @classmethod
    def of_socket(cls, connection: socket.socket, word: str) -> Pipe:
        """Return the pipe of a connected socket: stdin and stdout of the stage program at the other end."""
        # With a timeout Python itself manages O_NONBLOCK, but this module reads with `os.read`.
        connection.settimeout(None)
        return cls(connection.fileno(), connection.fileno(), word, held=[connection])

    def descriptors(self) -> set[int]:
        return {self.read, self.write} | ({self.said} if self.said is not None else set())

    def close(self) -> None:
        """Close the descriptors, and kill the local process with its group, if any. Does not wait."""
        for each in self._held:
            with contextlib.suppress(OSError):
                each.close()
        if self.process is not None:
            child_processes.end(self.process)


class Transport(Protocol):
    """Opens the pipe to one host, and explains why it failed."""

    def open(self) -> Pipe:
        """Begin to open a pipe. Does not wait for the other side. Raises LinkError."""
        ...

    def unanswered(self, code: int | None, said: str, printed: str) -> LinkError:
        """Return why no answer arrived. `said`: the error output; `printed`: other output on the pipe.

        `code`: the exit code of the pipe's process; None if it still runs or there is none.
        """
        ...

    def refused(self, words: Sequence[str]) -> LinkError:
        """Return the meaning of an answer other than `ok`."""
        ...


class FunctionTransport:
    """Transport around any function that returns a pipe, with general error texts."""

    def __init__(self, open_pipe: Callable[[], Pipe]) -> None:
        """`open_pipe` must not block. It may raise OSError or LinkError, whose text is the reason."""
        self._open_pipe = open_pipe

    def open(self) -> Pipe:
        try:
            return self._open_pipe()
        except OSError as error:
            raise LinkError(f"no way to it: {reason(error)}") from None

    def unanswered(self, code: int | None, said: str, printed: str) -> LinkError:
        shown = " ".join((printed + " " + said).split())[-300:]
        ended = "gave no answer" if code is None else f"ended with exit code {code}"
        return LinkError(f"its stage program {ended}" + (f"; it said: {shown}" if shown else ""))

    def refused(self, words: Sequence[str]) -> LinkError:
        return LinkError(f"its stage program answered {' '.join(words)!r}", final=True)


def stage_program() -> str:
    """Return the text of the program at the other end of a pipe. Start it with `python -I -c TEXT WORD`.

    Its stdin and stdout are the pipe. It needs only a Python of the notebook's version.
    """
    return Path(stage.__file__).read_text()


def by_pipe(open_pipe: Callable[[str], Pipe]) -> Reach:
    """Return a `Reach`. `open_pipe` opens the pipe to a host with the given name; see `FunctionTransport`."""

    def reach(host: str, wish: Mapping[str, Any], files: Sequence[Shipped]) -> StreamLink:
        return StreamLink(host, FunctionTransport(lambda: open_pipe(host)), wish, files)

    return reach


class StreamLink:
    """A link with at most one connection. After a loss, `open` creates another one."""

    ping_every_s = 2.0
    answers_within_s = 5.0
    exact_clock = True

    def __init__(
        self, host: str, transport: Transport, wish: Mapping[str, Any], files: Sequence[Shipped]
    ) -> None:
        """`wish`: the first message to the other side (agent/stage_program.py), without the mode."""
        self.host = host
        self._transport = transport
        self._wish = dict(wish)
        self._files = files
        self._pipe: Pipe | None = None
        self.stage: str | None = None
        self._sign = time.monotonic()
        self.up = False
        self.sent, self.to_send = 0, 0

    @property
    def opened(self) -> bool:
        return self._pipe is not None

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self._sign

    @property
    def pid(self) -> int | None:
        process = None if self._pipe is None else self._pipe.process
        return None if process is None else process.pid

    def open(self, mode: str) -> None:
        self.close()
        self._printed = b""
        self._said = b""
        self._answered = False
        self._frames = Frames()
        self._out: deque[bytes | Path | IO[bytes]] = deque()
        self._piece = memoryview(b"")
        self._ended_at: float | None = None
        self._sign = time.monotonic()
        self._pipe = pipe = self._transport.open()
        for descriptor in pipe.descriptors():
            os.set_blocking(descriptor, False)
        for descriptor in {pipe.read, pipe.write}:
            with contextlib.suppress(
                OSError
            ):  # a user limit or a socket: the pieces are smaller then, no more
                # A small pipe to ssh holds one page, and a payload would need tens of thousands of writes.
                fcntl.fcntl(descriptor, _F_SETPIPE_SZ, 1 << 20)
        if pipe.first:
            self._out.append(pipe.first)
        files = [[file.path, file.size] for file in self._files]
        wish = {**self._wish, "mode": mode, "files": files if mode == "stage" else []}
        self._out.append(encode(wish))

    @property
    def waiting(self) -> int:
        return len(self._piece) + sum(len(item) for item in self._out if isinstance(item, bytes))

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        if self.up:
            self._out.append(encode(header, len(body)) + body)

    def close(self) -> None:
        pipe, self._pipe, self.up = self._pipe, None, False
        if pipe is None:
            return
        pipe.close()
        for item in self._out:
            if not isinstance(item, bytes | Path):
                item.close()

    def rest(self) -> list[Frame]:
        return []  # a stream has no gaps: `pump` has returned all frames

    def register(self, poll: select.poll) -> None:
        if self._pipe is None:
            return
        wanted = dict.fromkeys(self._pipe.descriptors() - {self._pipe.write}, select.POLLIN)
        if self._out or self._piece:
            wanted[self._pipe.write] = select.POLLOUT
        wanted[self._pipe.read] = wanted.get(self._pipe.read, 0) | select.POLLIN
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)

    def pump(self) -> list[Frame]:
        if self._pipe is None:
            return []
        try:
            self._write(self._pipe)
            frames = self._read(self._pipe)
            self._check_time()
        except LinkError:
            self.close()
            raise
        return frames

    def _write(self, pipe: Pipe) -> None:
        budget = _AT_ONCE
        while budget > 0:
            if not self._piece:
                piece = self._next_piece()
                if piece is None:
                    return
                self._piece = memoryview(piece)
            try:
                done = os.write(pipe.write, self._piece)
            except BlockingIOError:
                return
            except OSError:
                return  # the next read reports the reason
            self._piece = self._piece[done:]
            budget -= done
            if not self.up:
                # When the link is up, only received bytes count: ssh accepts pings even on a dead connection.
                self._sign = time.monotonic()
                self.sent += done if self.to_send else 0

    def _next_piece(self) -> bytes | None:
        while self._out:
            head = self._out[0]
            if isinstance(head, bytes):
                self._out.popleft()
                return head
            if isinstance(head, Path):
                head = self._out[0] = head.open("rb")
            data = head.read(_PIECE)
            if data:
                return data
            head.close()
            self._out.popleft()
        return None

    def _read(self, pipe: Pipe) -> list[Frame]:
        self._listen(pipe)
        found: list[Frame] = []
        budget = _AT_ONCE
        while budget > 0:
            try:
                data = os.read(pipe.read, _PIECE)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                if (
                    not found
                ):  # otherwise the error would hide the last frames, and the next call meets the end
                    self._at_end(pipe)
                break
            budget -= len(data)
            self._sign = time.monotonic()
            found += self._take(data)
        return found

    def _take(self, data: bytes) -> list[Frame]:
        if not self._answered:
            data = self._find_answer(data)
            if not self._answered:
                return []
        try:
            frames = self._frames.feed(data)
        except FrameError as error:
            raise LinkError(f"host {self.host} sent {error}") from None
        return [frame for frame in frames if not self._is_ours(frame[0])]

    def _find_answer(self, data: bytes) -> bytes:
        """Skip the login's output up to our word. Returns the bytes after the answer."""
        assert self._pipe is not None
        word = self._pipe.word
        self._printed += data
        place = self._printed.find(word.encode())
        if place < 0:
            self._printed = self._printed[-8192:]
            return b""
        line, newline, rest = self._printed[place:].partition(b"\n")
        if not newline:
            return b""
        what = line.decode(errors="replace").split(" ", 2)[1:]
        if what != ["ok"]:
            raise self._transport.refused(what)
        self._answered = True
        self._printed = self._printed[:place]
        return rest

    def _is_ours(self, header: Mapping[str, Any]) -> bool:
        """Process the stage program's own messages. Returns whether this was such a message."""
        kind = header.get("is")
        if kind == "refused":
            raise LinkError(str(header.get("why")), final=bool(header.get("final")))
        if kind == "send":
            wanted = set(header["files"])
            files = [file for file in self._files if file.path in wanted]
            self.to_send = sum(file.size for file in files)
            for file in files:
                self._out.append(encode({"path": file.path}, file.size))
                self._out.append(file.content)
            self._out.append(encode({}))
            return True
        if kind == "connected":
            self.stage, self.up = str(header["stage"]), True
        return False

    def _at_end(self, pipe: Pipe) -> None:
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        ended = pipe.process is None or poll(pipe.process) is not None
        if not ended and now - self._ended_at < 2:
            return
        self._listen(pipe)
        raise self._lost(None if pipe.process is None else pipe.process.returncode)

    def _listen(self, pipe: Pipe) -> None:
        with contextlib.suppress(OSError):
            while pipe.said is not None and (said := os.read(pipe.said, 65536)):
                self._said = (self._said + said)[-16384:]

    def _lost(self, code: int | None) -> LinkError:
        said = self._said.decode(errors="replace")
        if self._answered:
            last = said.strip().split("\n")[-1].strip()
            return LinkError(last or "the connection was closed")
        return self._transport.unanswered(code, said, self._printed.decode(errors="replace"))

    def _check_time(self) -> None:
        silent = self.silent_s
        if self.up and silent > _SILENT_S:
            raise LinkError("no answer")
        if not self.up and silent > _OPENING_TIMEOUT_S:
            raise self._lost(None)
