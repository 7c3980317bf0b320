"""The supervisor's client of a backend process: sends calls and reads answers without ever blocking."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any

from ...folder import RunFolder
from ...job import Poll
from ...text.format import signal_name
from ..backend_calls import Call, Failure
from .process import BackendProcess, fork, spawn

__all__ = ["BackendProcessClient"]


class BackendProcessClient:
    """A backend in a backend process (server.py).

    If the process dies, its pending calls fail as temporary failures. The next call starts another process.
    The client calls `on_start` with the pid of each process before it sends a call.
    """

    def __init__(self, folder: RunFolder, on_start: Callable[[int], None], *, may_fork: bool = False) -> None:
        """`may_fork`: the client library works in a fork (`Capabilities.client`)."""
        self._folder, self._on_start, self._may_fork = folder, on_start, may_fork
        self._process: BackendProcess | None = None
        self._calls: dict[int, Call] = {}
        self._next = 0
        self._out, self._in = b"", b""
        self.generation = -1
        # An early start: the process imports its client library while the supervisor prepares the run.
        with contextlib.suppress(OSError):
            self._start()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _start(self) -> None:
        forked = fork(self._folder) if self._may_fork else None
        self._process = forked or spawn(self._folder)
        self._out, self._in = b"", b""
        self.generation += 1
        self._on_start(self._process.pid)
        os.set_blocking(self._process.calls, False)
        os.set_blocking(self._process.answers, False)

    def begin(self, name: str, /, **arguments: Any) -> Call:
        call = Call(name)
        try:
            if self._process is None:
                self._start()
            self._next += 1
            message = {"id": self._next, "call": name, "arguments": arguments}
            self._out += json.dumps(message).encode() + b"\n"
        except OSError as error:
            call.fail(Failure(type(error).__name__, f"no process could be started: {error}", may_pass=True))
            return call
        self._calls[self._next] = call
        self._send()
        return call

    def _send(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # `look` notices the process's end
            while self._out:
                self._out = self._out[os.write(self._process.calls, self._out) :]

    def look(self) -> None:
        if self._process is None:
            return
        self._send()
        ended = self._process.poll() is not None  # before the read, so that no answer is lost
        with contextlib.suppress(BlockingIOError):
            while True:
                data = os.read(self._process.answers, 1 << 20)
                if not data:
                    self._lost()
                    return
                *lines, self._in = (self._in + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        if ended:  # a child of the ended process still has the pipe open
            self._lost()

    def _take(self, answer: dict[str, Any]) -> None:
        call = self._calls.pop(answer["id"])
        if "failure" in answer:
            call.fail(Failure(**answer["failure"]))
        elif call.name == "poll":
            call.succeed(Poll.from_json(answer["value"]))
        else:
            call.succeed(answer["value"])

    def _lost(self, why: str | None = None) -> None:
        """Kill what is left of the process group, and fail the pending calls."""
        process, self._process = self._process, None
        if process is None:
            return
        code = process.end()
        how = f"exit code {code}" if code >= 0 else signal_name(-code)
        under_way, self._calls = self._calls, {}
        why = why or f"the backend's process ended with {how}"
        for call in under_way.values():
            call.fail(Failure("ProcessEnded", why, may_pass=True))

    def fileno(self) -> int | None:
        return None if self._process is None else self._process.answers

    def renew(self) -> None:
        self._lost("the backend's process was ended, because it did not answer")

    def close(self) -> None:
        self._lost()
