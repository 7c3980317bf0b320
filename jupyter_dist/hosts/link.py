"""The connection to one host's agent: opened by way of ssh, read and written without ever blocking."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ..agent.frames import Frame, FrameError, Frames, encode
from . import openssh
from .archive import Shipped
from .openssh import SshSettings

__all__ = ["Link", "LinkError"]

_OPENING_TIMEOUT_S = 45.0
"""Without any sign while a connection is being opened; beyond what ssh itself and nvidia-smi may take."""
_SILENT_S = 6.0
"""Without any sign from an agent, which answers a ping every few seconds."""
_AT_ONCE = 8 << 20
_PIECE = 1 << 18
_F_SETPIPE_SZ = 1031


class LinkError(Exception):
    """Why there is no connection. `final`: trying again makes no sense. `busy`: it well may, at once."""

    def __init__(self, why: str, *, final: bool = False, busy: bool = False) -> None:
        super().__init__(why)
        self.final, self.busy = final, busy


class Link:
    """One connection at a time; after it is lost, `open` makes another one."""

    def __init__(self, host: str, settings: SshSettings, wish: Mapping[str, Any], files: Sequence[Shipped]):
        """`wish`: what the other side is told first (agent/stage.py), apart from the mode."""
        self.host = host
        self._settings = settings
        self._wish = dict(wish)
        self._files = files
        self._process: subprocess.Popen[bytes] | None = None
        self.stage: str | None = None
        """The stage folder on the host, known from the first connection on."""
        self._sign = time.monotonic()
        self.up = False
        """Whether the agent is at the other end."""
        self.sent, self.to_send = 0, 0
        """Bytes of files: on their way, and in all."""

    @property
    def silent_s(self) -> float:
        """For how long there was no sign from the other side."""
        return time.monotonic() - self._sign

    @property
    def pid(self) -> int | None:
        """The local process that is the connection, a group of its own."""
        return None if self._process is None else self._process.pid

    def open(self, mode: str) -> None:
        """Begin to connect. `mode`: stage (set up what is not there), or resume."""
        self.close()
        self._word = secrets.token_hex(12)
        self._printed = b""
        self._said = b""
        self._answered = False
        self._frames = Frames()
        self._out: deque[bytes | Path | IO[bytes]] = deque()
        self._piece = memoryview(b"")
        self._ended_at: float | None = None
        self._sign = time.monotonic()
        argv = openssh.command(self.host, self._settings)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise LinkError(f"cannot run {argv[0]}: {error.strerror or error}", final=True) from None
        streams = _streams(self._process)
        for stream in streams:
            os.set_blocking(stream.fileno(), False)
        self._stdin, self._stdout, self._stderr = (stream.fileno() for stream in streams)
        with contextlib.suppress(OSError):  # a limit of this user: smaller pieces, nothing else
            # A small pipe to ssh has room for a page at a time: tens of thousands of turns for a payload.
            for pipe in (self._stdin, self._stdout):
                fcntl.fcntl(pipe, _F_SETPIPE_SZ, 1 << 20)
        self._out.append(openssh.opening(self._word, openssh.pythons(self._settings)))
        files = [[file.path, file.size] for file in self._files]
        wish = {**self._wish, "mode": mode, "files": files if mode == "stage" else []}
        self._out.append(encode(wish))

    def send(self, header: Mapping[str, Any]) -> None:
        """Put a message to the agent on its way; without one at the other end it is dropped."""
        if self.up:
            self._out.append(encode(header))

    def close(self) -> None:
        """End the connection; the agent goes on. Repeatable."""
        process, self._process, self.up = self._process, None, False
        if process is None:
            return
        for stream in _streams(process):
            with contextlib.suppress(OSError):
                stream.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for item in self._out:
            if not isinstance(item, bytes | Path):
                item.close()

    def register(self, poll: select.poll) -> None:
        """Have `poll` wake when this connection can go on."""
        if self._process is not None:
            poll.register(self._stdout, select.POLLIN)
            poll.register(self._stderr, select.POLLIN)
            if self._out or self._piece:
                poll.register(self._stdin, select.POLLOUT)

    def pump(self) -> list[Frame]:
        """Write and read what is possible now; returns the agent's messages.

        Raises LinkError when the connection is lost; it is closed then.
        """
        if self._process is None:
            return []
        try:
            self._write()
            frames = self._read()
            self._check_time()
        except LinkError:
            self.close()
            raise
        return frames

    def _write(self) -> None:
        budget = _AT_ONCE
        while budget > 0:
            if not self._piece:
                piece = self._next_piece()
                if piece is None:
                    return
                self._piece = memoryview(piece)
            try:
                done = os.write(self._stdin, self._piece)
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

    def _read(self) -> list[Frame]:
        with contextlib.suppress(BlockingIOError, OSError):
            while said := os.read(self._stderr, 65536):
                self._said = (self._said + said)[-16384:]
        found: list[Frame] = []
        budget = _AT_ONCE
        while budget > 0:
            try:
                data = os.read(self._stdout, _PIECE)
            except BlockingIOError:
                break
            if not data:
                self._at_end()
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
        self._printed += data
        place = self._printed.find(self._word.encode())
        if place < 0:
            self._printed = self._printed[-8192:]
            return b""
        line, newline, rest = self._printed[place:].partition(b"\n")
        if not newline:
            return b""
        what = line.decode(errors="replace").split(" ", 2)[1:]
        if what[:1] == ["python"]:
            others = what[1] if len(what) > 1 else ""
            raise LinkError(openssh.no_python(self._settings, others), final=True)
        if what != ["ok"]:
            raise LinkError(openssh.EATEN, final=True)
        self._answered = True
        self._printed = self._printed[:place]
        return rest

    def _is_ours(self, header: Mapping[str, Any]) -> bool:
        """Handle what comes before the agent has the word."""
        kind = header.get("is")
        if kind == "refused":
            raise LinkError(str(header.get("why")), final="is gone" in str(header.get("why")))
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

    def _at_end(self) -> None:
        assert self._process is not None
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        if self._process.poll() is None and now - self._ended_at < 2:
            return
        with contextlib.suppress(BlockingIOError, OSError):
            self._said += os.read(self._stderr, 65536)
        raise self._lost(self._process.returncode)

    def _lost(self, code: int | None) -> LinkError:
        said = self._said.decode(errors="replace")
        if self._answered:
            last = said.strip().split("\n")[-1].strip()
            return LinkError(last or "the connection was closed")
        printed = self._printed.decode(errors="replace")
        why = openssh.diagnose(self.host, self._settings, code, said, printed)
        return LinkError(why, busy=openssh.turned_away(said))

    def _check_time(self) -> None:
        silent = self.silent_s
        if self.up and silent > _SILENT_S:
            raise LinkError("no answer")
        if not self.up and silent > _OPENING_TIMEOUT_S:
            raise self._lost(None)


def _streams(process: subprocess.Popen[bytes]) -> list[IO[bytes]]:
    return [stream for stream in (process.stdin, process.stdout, process.stderr) if stream is not None]
