"""A backend's calls: how one is made, what it came to, and whether a failure may pass.

A backend lives in the supervisor's process (`InProcess`), or, where it declares `apart`, in a carrier of its
own (supervise/backend_process/client.py). Both answer through the same `Call`, so that the attempt never asks
where its backend is.
"""

from __future__ import annotations

import dataclasses
import errno
import socket
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
"""How the classes end that client libraries raise for a connection or a time that ran out."""
_GRPC = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")


@dataclass(frozen=True)
class Failure:
    """Why a call failed, as it also travels from a carrier."""

    kind: str
    """The name of the exception's class."""
    text: str
    may_pass: bool
    """The same call may succeed later."""
    told: bool = False
    """A DistError: its text is meant for the user, and says all there is to say."""
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text.strip().splitlines()[0][:200]}" if self.text.strip() else self.kind

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def failure_of(error: BaseException) -> Failure:
    """What there is to say of an exception that one of a backend's calls has raised."""
    try:
        text = str(error)
    except Exception:
        text = "<its str() raised as well>"
    told = isinstance(error, DistError)
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Failure(type(error).__name__, text, may_pass(error), told, trace)


def may_pass(error: BaseException) -> bool:
    """Whether the same call may succeed later: a service that does not answer, or not now.

    Client libraries have exceptions of their own. They are known here by what they carry and how they are
    called, for no library may be imported: `status` (kubernetes), `status_code` (azure), `code` (urllib,
    google, grpc), `response.status_code` (requests, httpx),
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
    """One call of a backend: under way until `done`, then with a value or a failure."""

    def __init__(self, name: str) -> None:
        self.name, self.began = name, time.monotonic()
        self.done = False
        self.value: Any = None
        self.failure: Failure | None = None

    def succeed(self, value: Any) -> None:
        self.done, self.value = True, value

    def fail(self, failure: Failure) -> None:
        self.done, self.failure = True, failure


class Caller(Protocol):
    """Where the backend lives. One object for a run; not for threads."""

    generation: int
    """How often its process has been started again: what a backend's object remembers is lost with it."""

    @property
    def pid(self) -> int | None:
        """The process group of its own that it lives in; None in the supervisor's process."""
        ...

    def begin(self, name: str, /, **arguments: Any) -> Call:
        """Make one of the calls. Never raises, and returns at once where the backend is apart.

        They are `submit` and `find` (attempt), `poll` (handle, cursor), `stop` (handle, kill), `ask` (handle,
        rank, verb), `release` (handle).
        """
        ...

    def look(self) -> None:
        """Take in the answers that have come."""
        ...

    def fileno(self) -> int | None:
        """What becomes readable when an answer comes."""
        ...

    def renew(self) -> None:
        """Give up whatever is under way: those calls fail, and a fresh object answers the next one."""
        ...

    def close(self) -> None:
        """No more calls; ends its process."""
        ...


class InProcess:
    """A backend in this process: each call has been answered when `begin` returns."""

    generation = 0
    pid: int | None = None

    def __init__(self, backend: Backend, job: Job, folder: RunFolder) -> None:
        self._backend, self._job, self._folder = backend, job, folder

    def begin(self, name: str, /, **arguments: Any) -> Call:
        call = Call(name)
        try:
            call.succeed(perform(self._backend, self._job, self._folder, name, arguments))
        except BaseException as error:  # another package's, and no reason to leave the ranks alone
            call.fail(failure_of(error))
        return call

    def look(self) -> None:
        pass

    def fileno(self) -> int | None:
        return None

    def renew(self) -> None:
        pass  # nothing is ever under way

    def close(self) -> None:
        pass


def perform(backend: Backend, job: Job, folder: RunFolder, name: str, arguments: Mapping[str, Any]) -> Any:
    """Make a call on a backend, in the process where it lives."""
    if name in ("submit", "find"):
        handle = getattr(backend, name)(job, folder, arguments["attempt"])
        return None if handle is None else dict(handle)
    if name == "poll":
        return backend.poll(arguments["handle"], arguments["cursor"])
    if name == "stop":
        return backend.stop(arguments["handle"], kill=arguments["kill"])
    if name == "ask":
        return backend.ask(arguments["handle"], arguments["rank"], arguments["verb"])
    if name == "release":
        return backend.release(arguments["handle"])
    raise ValueError(f"no such call: {name!r}")
