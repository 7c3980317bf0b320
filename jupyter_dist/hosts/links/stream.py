"""The stream link: frames over a byte pipe to a stage program, whoever opened the pipe.

A *door* opens the pipe (`ssh_transport.py` does so by way of ssh; a backend may have another way: a socket,
the methods of an actor, a WebSocket); the link speaks over it, and never blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from ...agent import stage_program as stage
from ...agent.frames import Frame, FrameError, Frames, encode
from ..staged_files import Shipped
from .link import LinkError, Reach

__all__ = ["FunctionTransport", "Pipe", "StreamLink", "Transport", "by_pipe", "stage_program"]

_OPENING_TIMEOUT_S = 45.0
"""Without any sign while a connection is being opened; beyond what ssh itself and nvidia-smi may take."""
_SILENT_S = 6.0
"""Without any sign from an agent, which answers a ping every few seconds."""
_AT_ONCE = 8 << 20
_PIECE = 1 << 18
_F_SETPIPE_SZ = 1031


class Pipe:
    """A byte pipe to a stage program (agent/stage_program.py) that was started at its other end."""

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
        """`word`: the argument that the stage program was started with, by which its answer is known.
        `first`: what has to be written before anything else. `said`: a descriptor on which is told what
        goes wrong. `held`: what closes the descriptors. `process`: the local process, a group of its own,
        whose streams they are."""
        self.read, self.write, self.said, self.word, self.first = read, write, said, word, first
        self.process = process
        self._held = held

    @classmethod
    def of_process(cls, process: subprocess.Popen[bytes], word: str, first: bytes = b"") -> Pipe:
        """The three streams of a process that leads a session of its own, made with `bufsize=0`."""
        streams = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream is not None]
        into, out, said = (stream.fileno() for stream in streams)
        return cls(out, into, word, first=first, said=said, held=streams, process=process)

    @classmethod
    def of_socket(cls, connection: socket.socket, word: str) -> Pipe:
        """A connected socket, which is the stage program's stdin and stdout at the other end."""
        # A timeout would leave O_NONBLOCK to Python's bookkeeping, which does not see our reads.
        connection.settimeout(None)
        return cls(connection.fileno(), connection.fileno(), word, held=[connection])

    def descriptors(self) -> set[int]:
        return {self.read, self.write} | ({self.said} if self.said is not None else set())

    def close(self) -> None:
        """Close it here, and end the process that it was."""
        for each in self._held:
            with contextlib.suppress(OSError):
                each.close()
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Transport(Protocol):
    """How one host's pipe is opened, and what it means when nothing comes of it."""

    def open(self) -> Pipe:
        """Begin to open a pipe. Does not wait for the other side. Raises LinkError."""
        ...

    def unanswered(self, code: int | None, said: str, printed: str) -> LinkError:
        """Why no answer came. `code`: how the pipe's process ended, None where it has not, or there is none;
        `said`: what was said beside the pipe; `printed`: what came in place of the answer."""
        ...

    def refused(self, words: Sequence[str]) -> LinkError:
        """What an answer means that is not `ok`."""
        ...


class FunctionTransport:
    """A door that needs no words of its own: any function that returns a pipe."""

    def __init__(self, open_pipe: Callable[[], Pipe]) -> None:
        """`open_pipe` must not block; what it raises is why there is no link, an OSError or a LinkError."""
        self._open_pipe = open_pipe

    def open(self) -> Pipe:
        try:
            return self._open_pipe()
        except OSError as error:
            raise LinkError(f"no way to it: {error.strerror or error}") from None

    def unanswered(self, code: int | None, said: str, printed: str) -> LinkError:
        shown = " ".join((printed + " " + said).split())[-300:]
        ended = "gave no answer" if code is None else f"ended with exit code {code}"
        return LinkError(f"its stage program {ended}" + (f"; it said: {shown}" if shown else ""))

    def refused(self, words: Sequence[str]) -> LinkError:
        return LinkError(f"its stage program answered {' '.join(words)!r}", final=True)


def stage_program() -> str:
    """The program for the other end of a pipe, as text: `python -I -c TEXT WORD`, whose stdin and stdout are
    the pipe. It needs nothing but a Python of the notebook's version."""
    return Path(stage.__file__).read_text()


def by_pipe(open_pipe: Callable[[str], Pipe]) -> Reach:
    """Links over pipes that `open_pipe` opens by the name of a host; see `FunctionTransport`."""

    def reach(host: str, wish: Mapping[str, Any], files: Sequence[Shipped]) -> StreamLink:
        return StreamLink(host, FunctionTransport(lambda: open_pipe(host)), wish, files)

    return reach


class StreamLink:
    """One connection at a time; after it is lost, `open` makes another one."""

    ping_every_s = 2.0
    exact_clock = True

    def __init__(
        self, host: str, transport: Transport, wish: Mapping[str, Any], files: Sequence[Shipped]
    ) -> None:
        """`wish`: what the other side is told first (agent/stage_program.py), apart from the mode."""
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
            ):  # a limit of this user, or a socket: smaller pieces, nothing else
                # A small pipe to ssh has room for a page at a time: tens of thousands of turns for a payload.
                fcntl.fcntl(descriptor, _F_SETPIPE_SZ, 1 << 20)
        if pipe.first:
            self._out.append(pipe.first)
        files = [[file.path, file.size] for file in self._files]
        wish = {**self._wish, "mode": mode, "files": files if mode == "stage" else []}
        self._out.append(encode(wish))

    def send(self, header: Mapping[str, Any]) -> None:
        if self.up:
            self._out.append(encode(header))

    def close(self) -> None:
        pipe, self._pipe, self.up = self._pipe, None, False
        if pipe is None:
            return
        pipe.close()
        for item in self._out:
            if not isinstance(item, bytes | Path):
                item.close()

    def rest(self) -> list[Frame]:
        return []  # of what a stream carries, nothing is missing before what came

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
                return  # the reading side tells why
            self._piece = self._piece[done:]
            budget -= done
            if not self.up:
                # Once it is up only what comes is a sign of it: ssh takes our pings however dead the line.
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
        """Pass over what the login prints, up to our word; returns what comes after it."""
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
        """Handle what comes before the agent has the word."""
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
        ended = pipe.process is None or pipe.process.poll() is not None
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
