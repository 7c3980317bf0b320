"""Calls of a backend: the caller, the result, and whether a failure is temporary.

A backend runs in the supervisor's process (`InProcess`). If the backend declares `apart`, it runs in a
backend process of its own (supervise/backend_process/client.py). Both return the same `Call`, so the attempt
need not distinguish them.
"""

from __future__ import annotations

import dataclasses
import errno
import socket
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..backends.interface import Backend
from ..errors import DistError, Unreachable
from ..folder import RunFolder
from ..job import Job

__all__ = ["Call", "Caller", "Failure", "InProcess", "failure_of", "may_pass", "perform"]

_NETWORK = {
    getattr(errno, name)
    for name in (
        *("ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETRESET"),
        *("ENETUNREACH", "ENOTCONN", "EPIPE", "ESTALE", "ETIMEDOUT"),
    )
    if hasattr(errno, name)
}
_NAMES = ("ConnectionError", "ConnectError", "ConnectTimeout", "Timeout", "TimeoutError", "TimeoutExpired")
"""Suffixes of the class names that client libraries use for connection errors and timeouts."""
_AT_ONCE_S = 0.05
"""Most releases have nothing to wait for. The supervisor needs no further turn for those."""
_GRPC = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")


@dataclass(frozen=True)
class Failure:
    """Reason of a failed call. A backend process sends it as JSON."""

    kind: str
    """The name of the exception's class."""
    text: str
    may_pass: bool
    """The same call may succeed later."""
    told: bool = False
    """Whether the exception is a DistError. Its text is complete and written for the user."""
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text.strip().splitlines()[0][:200]}" if self.text.strip() else self.kind

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def failure_of(error: BaseException) -> Failure:
    """Describe an exception that a backend's call has raised."""
    try:
        text = str(error)
    except Exception:
        text = "<its str() raised as well>"
    told = isinstance(error, DistError)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Failure(type(error).__name__, text, may_pass(error), told, trace)


def may_pass(error: BaseException) -> bool:
    """Return whether the same call may succeed later, for example because a service does not answer now.

    This module must not import client libraries. It recognises their exceptions by class name and attribute:
    `status` (kubernetes), `status_code` (azure), `code` (urllib, google, grpc),
    `response.status_code` (requests, httpx),
    `response["ResponseMetadata"]["HTTPStatusCode"]` (botocore).
    """
    if isinstance(error, Unreachable | ConnectionError | TimeoutError | socket.gaierror):
        return True
    if isinstance(error, DistError | SystemExit):
        return False
    status = _http_status(error)
    if status is not None:
        return status in (408, 429) or 500 <= status < 600
    if _grpc_status(error) in _GRPC or (isinstance(error, OSError) and error.errno in _NETWORK):
        return True
    return any(base.__name__.endswith(_NAMES) for base in type(error).__mro__)


def _http_status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    found = [getattr(error, name, None) for name in ("status", "status_code", "code")]
    found.append(getattr(response, "status_code", None))
    if isinstance(response, Mapping):
        about = response.get("ResponseMetadata")
        found.append(about.get("HTTPStatusCode") if isinstance(about, Mapping) else None)
    return next((int(one) for one in found if isinstance(one, int) and 100 <= one < 600), None)


def _grpc_status(error: BaseException) -> str | None:
    code = getattr(error, "code", None)
    try:
        return str(getattr(code() if callable(code) else code, "name", None))
    except Exception:
        return None


class Call:
    """One call of a backend. Once `done` is true, the call has a value or a failure."""

    def __init__(self, name: str) -> None:
        self.name, self.began = name, time.monotonic()
        self.done = False
        self.value: Any = None
        self.failure: Failure | None = None

    def succeed(self, value: Any) -> None:
        self.value, self.done = value, True  # in this order, because a thread may read them

    def fail(self, failure: Failure) -> None:
        self.failure, self.done = failure, True


class Caller(Protocol):
    """Interface to a backend in this process or another. Each run has one object. Not thread-safe."""

    generation: int
    """How often the backend process was restarted. A restart loses the state of the backend's object."""

    @property
    def pid(self) -> int | None:
        """Return the process group of the backend process; None if the supervisor runs the backend itself."""
        ...

    def begin(self, name: str, /, **arguments: Any) -> Call:
        """Make one of the calls. Never raises.

        The calls are `submit` and `find` (attempt), `poll` (handle, cursor), `stop` (handle, kill), `ask`
        (handle, rank, verb), `release` (handle), and for a session `exchange` (handle, wishes, wait_s).
        Each call also gets the run's job and folder.
        Blocks only if the supervisor runs the backend itself.
        """
        ...

    def look(self) -> None:
        """Process the answers that have arrived."""
        ...

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when an answer has arrived."""
        ...

    def renew(self) -> None:
        """Cancel all pending calls. They fail, and a new backend object answers the next call."""
        ...

    def close(self) -> None:
        """End the backend process, if any. No call may follow."""
        ...


class InProcess:
    """A backend in this process. Each call is done when `begin` returns, except `release`.

    A release may wait for hosts and their checkpoints, so a thread makes this call. It is a run's last call.
    """

    generation = 0
    pid: int | None = None

    def __init__(self, backend: Backend, job: Job, folder: RunFolder) -> None:
        self._backend, self._job, self._folder = backend, job, folder

    def begin(self, name: str, /, **arguments: Any) -> Call:
        call = Call(name)
        if name == "release":
            made = threading.Thread(target=self._make, args=(call, arguments), name=name, daemon=True)
            made.start()
            made.join(_AT_ONCE_S)
        else:
            self._make(call, arguments)
        return call

    def _make(self, call: Call, arguments: Mapping[str, Any]) -> None:
        try:
            call.succeed(perform(self._backend, self._job, self._folder, call.name, arguments))
        except BaseException as error:  # an error in another package must not end the supervisor
            call.fail(failure_of(error))

    def look(self) -> None:
        pass

    def fileno(self) -> int | None:
        return None

    def renew(self) -> None:
        pass  # no call is ever pending

    def close(self) -> None:
        pass


def perform(backend: Backend, job: Job, folder: RunFolder, name: str, arguments: Mapping[str, Any]) -> Any:
    """Make a call on a backend of this process."""
    if name in ("submit", "find"):
        handle = getattr(backend, name)(job, folder, arguments["attempt"])
        return None if handle is None else dict(handle)
    if name not in ("poll", "stop", "ask", "release", "exchange"):
        raise ValueError(f"no such call: {name!r}")
    more = dict(arguments)
    return getattr(backend, name)(job, folder, more.pop("handle"), **more)
