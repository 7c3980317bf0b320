"""The way of a prompt from a rank to its user, and of the answer back. Both ways are text in files.

The rank appends JSON lines to layout.PROMPTS in its folder. Each line has a `kind` and a `time`:

    stop      the rank has stopped: `why`, `place`, and the `error` that it is at. A command of pdb can stop
              again, as in `p input()`. When that is over, the rank writes the line of the outer stop again
    text      what the debugger prints: `text`
    prompt    the rank waits for a line: `id`, and the `text` of the prompt
    taken     the rank has read the answer to the prompt `id`
    go        the rank continues. `steps`: it will stop again at one of the next lines. `ends`: it ends

The user's side writes the answer to layout.answer(rank) in the run's requests. An agent copies this file to
its host. The answer is JSON:

    prompt    the id of the prompt. The rank ignores an answer to another prompt
    line      the line, without its end; or null if there is no line, and never will be
    reason    why there is none

Nothing here is unpickled or evaluated, except by the debugger that has asked.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import layout
from ..boot import Terminated
from ..line_file import LineFile
from ..output import events

__all__ = [
    "BREAKPOINT",
    "ERROR",
    "INPUT",
    "Channel",
    "Input",
    "Interrupted",
    "NobodyAnswers",
    "Output",
    "current",
    "is_empty",
    "use",
]

BREAKPOINT, ERROR, INPUT = "breakpoint", "error", "input"
"""Why a rank has stopped."""
_SOON_S, _LATER_S = 0.01, 0.05
_SOON_FOR_S = 2.0
_PIECE = 1 << 16
_MOST = 2000
"""The length of an error and of a place. The record reads no line over 1 MB."""
_channel: Channel | None = None


class Interrupted(BaseException):
    """KeyboardInterrupt at a prompt, under a name that pdb does not catch."""


class NobodyAnswers(BaseException):
    """The user's side has no input. The text says why."""


def use(channel: Channel | None) -> None:
    """Make this the channel of the rank."""
    global _channel
    _channel = channel


def current() -> Channel | None:
    """Return the rank's channel. None in a process that the rank has started, and outside of a cell."""
    return _channel if _channel is not None and _channel.is_here else None


def is_empty(stream: Any) -> bool:
    """Return whether a stream is the empty standard input of a rank."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(os.devnull))
    except (AttributeError, OSError, ValueError):  # the stream is not a file
        return False


class Channel:
    """Prompts of one rank during one cell. Several threads may use it: one of them asks at a time."""

    def __init__(
        self,
        run_folder: Path,
        rank_folder: Path,
        labels: Mapping[str, str],
        *,
        holds_errors: bool = False,
        nobody: str = "",
    ) -> None:
        """`nobody`: why no user can answer this rank. By default one can."""
        self.labels, self.holds_errors = dict(labels), holds_errors
        self.used = False
        """Whether the rank has asked anything."""
        self.place = ""
        """Where the rank has stopped last."""
        self.failed_at = 0.0
        """When an error was raised that `--pdb` holds; 0 if there was none."""
        self.error = self.preface = ""
        """With `--pdb`: the error at which the debugger opens, and what it shows first."""
        self.debugger: Any = None
        """The debugger that has stopped last; None if none has."""
        self.turn = threading.RLock()
        self._nobody = nobody
        self._stops: list[dict[str, Any]] = []
        """Where the rank has stopped, the outermost first."""
        self._request: BaseException | None = None
        """The request to end that has arrived while pdb is open."""
        self._path = os.fspath(rank_folder / layout.PROMPTS)
        self._answers = os.fspath(run_folder / layout.REQUESTS / layout.answer(rank_folder.name))
        self._file: LineFile | None = None
        self._pid = os.getpid()
        self._token, self._asked = secrets.token_hex(4), 0
        self.output = Output(self)
        self.input = Input(self)
        if os.path.exists(self._path):  # an earlier process of this rank may have died at a prompt
            self.go()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def name(self, filename: str, line: int) -> str:
        """Return a place as the user writes it: `In[4], line 14` or `train.py:14`."""
        label = self.labels.get(filename)
        if label is not None:
            return f"{label}, line {line}"
        folder, name = os.path.split(filename)
        return f"{os.path.basename(folder)}/{name}:{line}" if name == "__init__.py" else f"{name}:{line}"

    def labelled(self, text: str) -> str:
        """Replace the files of cells by their labels."""
        for file, label in self.labels.items():
            for before, after in (("", "("), ("", ":"), ('File "', '"')):
                text = text.replace(f"{before}{file}{after}", f"{before}{label}{after}")
        return text

    def stop(self, why: str, place: str, error: str = "") -> None:
        self.used = True
        self._stops.append({"time": events.now(), "why": why, "place": place[:_MOST], "error": error[:_MOST]})
        self._stopped()
        if self.preface:
            self.text(self.preface)
            self.preface = ""

    def go(self, *, steps: bool = False, ends: bool = False) -> None:
        """Continue. If the rank has stopped within a command of pdb, it is still at the outer stop then."""
        if rest := self.output.unfinished():
            self.text(f"{rest}\n")
        if self._stops:
            self._stops.pop()
        if self._stops:
            self._stopped()
        else:
            self._request = None
            self._write("go", steps=steps, ends=ends)

    def _stopped(self) -> None:
        self.place = str(self._stops[-1]["place"])
        self._write("stop", **self._stops[-1])

    @property
    def in_pdb(self) -> bool:
        """Return whether pdb is open, perhaps below a question of `input()`."""
        return any(stop["why"] != INPUT for stop in self._stops)

    def remember(self, request: BaseException) -> None:
        """Raise this request to end again at the next prompt of pdb: pdb itself catches it."""
        if self.in_pdb:
            self._request = request

    def end_tracing(self) -> None:
        """End the tracing of the debugger, if it traces."""
        debugger = self.debugger
        if debugger is None:
            return
        if sys.gettrace() is not None:
            sys.settrace(None)
        elif not debugger.quitting and hasattr(debugger, "stop_trace"):
            debugger.quitting = True  # else it would stop at its own next function
            debugger.stop_trace()  # Python 3.14 can trace without `sys.settrace`
        else:
            return
        self.go()

    def text(self, text: str) -> None:
        for piece in _pieces(text):
            self._write("text", text=piece)

    def ask(self, prompt: str) -> str:
        """Return the user's line. Blocks until there is one.

        Raises EOFError at the end of the user's input, and NobodyAnswers if the user's side has none. If the
        rank is asked to end meanwhile, raises Terminated or KeyboardInterrupt; in pdb Interrupted.
        """
        if self._nobody:
            raise NobodyAnswers(self._nobody)
        try:
            return self._ask(prompt)
        except (KeyboardInterrupt, Terminated) as request:
            self.remember(request)
            if self.in_pdb and isinstance(request, KeyboardInterrupt):
                raise Interrupted from None
            raise

    def _ask(self, prompt: str) -> str:
        if self._request is not None:
            raise self._request
        self._asked += 1
        id = f"{self._token}-{self._asked}"
        self._write("prompt", id=id, text=prompt[:_PIECE])
        soon_until = time.monotonic() + _SOON_FOR_S
        while (answer := self._answer(id)) is None:
            time.sleep(_SOON_S if time.monotonic() < soon_until else _LATER_S)
        self._write("taken", id=id)
        line = answer.get("line")
        if line is None and answer.get("reason"):
            raise NobodyAnswers(str(answer["reason"]))
        if line is None:
            raise EOFError("EOF when reading a line")
        return str(line)

    def _answer(self, id: str) -> dict[str, Any] | None:
        try:
            with open(self._answers, "rb") as file:
                found = json.loads(file.read())
        except (OSError, ValueError):  # there is none
            return None
        return found if isinstance(found, dict) and found.get("prompt") == id else None

    def _write(self, kind: str, **more: Any) -> None:
        if self._nobody:
            return
        if self._file is None:
            self._file = LineFile(self._path)
        # `time` in `more` wins: a rank that returns to an outer stop has stopped there earlier.
        line = json.dumps({"kind": kind, "time": events.now(), **more}, ensure_ascii=True)
        self._file.append(line.encode() + b"\n")


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))


class Output(io.TextIOBase):
    """The debugger's output. An unfinished line is the prompt of the next question."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._line = channel, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        whole, newline, rest = (self._line + text).rpartition("\n")
        if newline:
            self._channel.text(self._channel.labelled(whole + newline))
        self._line = rest
        return len(text)

    def unfinished(self) -> str:
        line, self._line = self._line, ""
        return line

    def flush(self) -> None:
        """Keep an unfinished line: `cmd.Cmd` flushes after it has written its prompt."""


class Input(io.TextIOBase):
    """The debugger's input."""

    encoding = "utf-8"

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        try:
            return self._channel.ask(self._channel.output.unfinished()) + "\n"
        except EOFError:
            return ""
