"""The kernel's side of a session: questions to its supervisor, and cells for it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, LaunchError
from ..folder import RunFolder, make_private, write_json
from ..record import reader
from ..record.sessions import StoredSession, find_session, list_sessions, session_folder
from ..worker.file_locks import locked
from ..worker.process_identity import start_ticks
from ..worker.session import channel, place
from .session_connections import OPEN

__all__ = [
    "Delivery",
    "NamesChanged",
    "ask",
    "close",
    "existing",
    "is_open",
    "kill",
    "restart",
    "starting",
    "wait_until_open",
    "wake",
]

_ANSWER_S = 30.0
_START_S = 120.0
_CLOSE_S = place.EXIT_LIMIT_S + 130.0
"""The supervisor waits for exit handlers, and for two minutes at most for a platform that ends its job."""
_POLL_S = 0.002
_LONG = 16_000
"""Up to this length, a cell's source is sent in advance. A longer one could fill the connection.

JSON has up to 12 bytes for a character.
"""


class NamesChanged(LaunchError):
    """The session has refused a cell, because the names of its ranks have changed since they were read."""


def existing(name: str) -> StoredSession:
    """Return the session with this name. Raises InputError, which lists the sessions."""
    found = find_session(name)
    if found is None:
        others = ", ".join(one.name for one in list_sessions())
        raise InputError(
            f"no session is named {name!r}. "
            + (f"The sessions are: {others}" if others else "Start it with %%distribute --session")
        )
    return found


def ask(
    session: StoredSession, message: Mapping[str, Any], meanwhile: Callable[[], object] | None = None
) -> dict[str, Any]:
    """Ask a session's supervisor. Blocks until it answers. Raises LaunchError.

    The connection stays open for this process's next question.

    `meanwhile`: is called while the supervisor answers. Its exceptions pass through, and the answer is lost.
    """
    _refuse_elsewhere(session)
    try:
        with _connected(session) as link:
            link.send(message)
            if meanwhile is not None:
                meanwhile()
            answer = link.receive()
            if answer is None:
                raise EOFError
    except (EOFError, ConnectionError, FileNotFoundError):  # nobody listens, or nobody does any more
        raise LaunchError(
            f"The session {session.name!r} has just ended. Run the cell again to start it anew"
        ) from None
    except (OSError, ValueError) as error:
        raise LaunchError(
            f"The session {session.name!r} does not answer: {error}. End it with "
            f"`%dist close --kill {session.name}`, then run the cell again"
        ) from error
    if "error" in answer:
        raise LaunchError(answer["error"] + ("" if answer.get("began") else ". Nothing was started"))
    return answer


def is_open(session: StoredSession) -> bool:
    """Return whether this process has a connection to this session, which proves that it still runs."""
    return OPEN.has(session)


def wake(session: StoredSession, code: tuple[str, str, int]) -> None:
    """Wake the processes of a session, because a cell follows. The ranks compile it while it is captured.

    `code`: the source, the file name and the flags of the cell. Does nothing if no connection is open.
    """
    if session.about.get("takes_jobs") and len(code[0]) < _LONG and is_open(session):
        # After an error or an interrupt, half a message may have been sent: the connection is closed.
        with contextlib.suppress(OSError), _connected(session) as link:
            link.send({"ask": "wake", "code": code})


@contextlib.contextmanager
def _connected(session: StoredSession) -> Iterator[channel.Channel]:
    """Connect to a session's supervisor, or use the connection of this process's last question.

    After an error the connection is closed, because its answer could arrive later.
    """
    link = OPEN.take(session)
    try:
        link.sock.settimeout(_ANSWER_S)
        yield link
    except BaseException:
        link.close()
        raise
    OPEN.keep(session, link)


def _refuse_elsewhere(session: StoredSession) -> None:
    if not session.is_here:
        raise LaunchError(
            f"The session {session.name!r} runs on the machine {session.host!r}, and this is "
            f"{socket.gethostname()!r}. Use another name here, such as --session {session.name}-2"
        )


@dataclass(frozen=True)
class Delivery:
    """The delivery of a cell to a session. `more`: what the supervisor needs besides the job."""

    session: StoredSession
    more: Mapping[str, Any]

    def send(self, folder: RunFolder, job: Mapping[str, Any]) -> None:
        """Hand the cell over. The supervisor writes the job. Raises LaunchError and NamesChanged."""
        session = self.session
        whose = {"session": session.about["id"], "folder": str(folder.path), "job": job}
        if not session.about.get("takes_jobs"):  # another version of jupyter-dist has started the session
            write_json(folder.job, job)
        answer = ask(session, {"ask": "cell", **whose, **self.more})
        if answer.get("changed"):
            raise NamesChanged(f"the names of the session {session.name!r} have changed")


@contextlib.contextmanager
def starting(name: str) -> Iterator[None]:
    """Keep other kernels from starting a session with this name meanwhile. Raises LaunchError."""
    path = session_folder(name)
    try:
        make_private(path)
        with locked(path / place.START_LOCK):
            yield
    except OSError as error:
        raise LaunchError(f"cannot write the session's folder {str(path)!r}: {error}") from error


def wait_until_open(name: str, first: RunFolder) -> None:
    """Wait until the session accepts cells, or its first cell has ended."""
    until = time.monotonic() + _START_S
    while find_session(name) is None and time.monotonic() < until:
        if reader.status(first).state.ended:
            return
        time.sleep(_POLL_S)


def restart(session: StoredSession) -> None:
    """Give every rank of a session a fresh process. Raises LaunchError if a cell runs in it."""
    ask(session, {"ask": "restart"})


def close(session: StoredSession) -> bool:
    """End a session. Returns whether its supervisor has ended. Blocks. Raises LaunchError."""
    ask(session, {"ask": "close"})
    return _ends(session)


def kill(session: StoredSession) -> bool:
    """Kill a session's supervisor, whose guard kills the ranks. Returns whether it has ended.

    Raises LaunchError for a session of another machine.
    """
    _refuse_elsewhere(session)
    about = session.about["supervisor"]
    if start_ticks(about["pid"]) == about["start_ticks"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(about["pid"], signal.SIGKILL)
    return _ends(session)


def _ends(session: StoredSession) -> bool:
    OPEN.drop(session)
    about, until = session.about["supervisor"], time.monotonic() + _CLOSE_S
    while start_ticks(about["pid"]) == about["start_ticks"]:
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True
