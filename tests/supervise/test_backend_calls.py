"""Which exceptions of a backend may pass, and how a call is made again."""

from __future__ import annotations

import errno
import socket
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.errors import InputError, LaunchError, Unreachable
from jupyter_dist.supervise.backend_calls import Call, Failure, failure_of, may_pass
from jupyter_dist.supervise.retry import RetriedCall


def client_error(base: type[Exception] = Exception, name: str = "ApiException", **carries: Any) -> Exception:
    error: Exception = type(name, (base,), {})("told")
    for key, value in carries.items():
        setattr(error, key, value)
    return error


def boto(status: int) -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    "error",
    [
        *(Unreachable("no route"), ConnectionResetError(), BrokenPipeError(), TimeoutError()),
        *(OSError(errno.EHOSTUNREACH, "no route"), socket.gaierror(-3, "again")),
        subprocess.TimeoutExpired("kubectl", 5),
        *(client_error(status=429), client_error(status_code=503), client_error(code=500)),
        *(client_error(status=408), client_error(response=SimpleNamespace(status_code=502))),
        *(client_error(response=boto(503)), client_error(name="EndpointConnectionError")),
        *(client_error(name="ReadTimeout"), client_error(name="ConnectError")),
        client_error(code=lambda: SimpleNamespace(name="UNAVAILABLE", value=(14, "unavailable"))),
    ],
    ids=repr,
)
def test_what_may_pass(error: Exception) -> None:
    assert may_pass(error)


@pytest.mark.parametrize(
    "error",
    [
        *(KeyError("phase"), ValueError(), OSError(errno.ENOENT, "gone"), OSError(errno.ENOSPC, "full")),
        *(InputError("no"), LaunchError("no"), SystemExit(503), PermissionError(errno.EACCES, "no")),
        *(client_error(status=404), client_error(status_code=403), client_error(response=boto(400))),
        client_error(name="ReadTimeout", status=400),
        client_error(code=lambda: SimpleNamespace(name="INVALID_ARGUMENT")),
        client_error(status="503"),
    ],
    ids=repr,
)
def test_what_does_not(error: BaseException) -> None:
    assert not may_pass(error)


def test_a_failure_travels_as_json() -> None:
    failure = failure_of(Unreachable("no\nroute"))
    assert Failure(**failure.to_json()) == failure
    assert (str(failure), failure.told, failure.may_pass) == ("Unreachable: no", True, True)
    assert "Unreachable" in failure.trace


def test_an_error_that_cannot_be_printed_is_one_all_the_same() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert failure_of(Odd()).kind == "Odd"


class Answers:
    """A caller whose calls come to what the test says."""

    generation = 0
    pid = None

    def __init__(self) -> None:
        self.made: list[Call] = []

    def begin(self, name: str, /, **arguments: Any) -> Call:
        self.made.append(Call(name))
        return self.made[-1]


PASSES = Failure("ConnectionError", "503", may_pass=True)
STAYS = Failure("KeyError", "phase", may_pass=False)


def fail(line: RetriedCall, caller: Answers, now: float, failure: Failure) -> None:
    line.begin()
    caller.made[-1].fail(failure)
    assert line.take(now) is caller.made[-1]


def test_pauses_grow_and_end_with_a_success() -> None:
    caller = Answers()
    line = RetriedCall(caller, "poll", 300.0)  # type: ignore[arg-type]
    now = 1000.0
    pauses = []
    for _ in range(10):
        fail(line, caller, now, PASSES)
        assert not line.ready(now)
        pause = next(step / 100 for step in range(10_000) if line.ready(now + step / 100))
        pauses.append(pause)
        now += pause
    assert pauses[0] < 0.5
    assert 5 <= pauses[-1] <= 15
    assert line.trouble(now) == (
        f"the backend does not answer (ConnectionError: 503); trying again, {now - 1000:.0f} s so far"
    )
    line.begin()
    assert not line.ready(now)
    caller.made[-1].succeed(None)
    line.take(now)
    assert line.ready(now)
    assert line.trouble(now) is None


def test_it_is_given_up_after_the_grace_or_three_times_what_does_not_pass() -> None:
    caller = Answers()
    line = RetriedCall(caller, "poll", 10.0)  # type: ignore[arg-type]
    fail(line, caller, 100.0, PASSES)
    assert not line.exhausted(109.0)
    assert line.exhausted(110.0)
    line = RetriedCall(caller, "stop", 10.0)  # type: ignore[arg-type]
    for _ in range(2):
        fail(line, caller, 100.0, STAYS)
        assert not line.exhausted(100.0)
    fail(line, caller, 100.0, STAYS)
    assert line.exhausted(100.0)
