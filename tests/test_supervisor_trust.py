"""The supervisor trusts no backend: calls that fail, block, break and die; a submission that is cut off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from far_service import Service
from launching import ended, launch_cell, logs, story

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from jupyter_dist.record import reader

WaitFor = Callable[..., Any]

UP = "import time\nprint('up')\ntime.sleep(600)"
SAYS = "print('up')\n42"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        found = Service(tmp_path / "store", patch)
        yield found
        found.close()


def start(backend: str, source: str, **options: Any) -> RunFolder:
    run = {name: options.pop(name) for name in ("max_restarts", "timeout_s", "env") if name in options}
    return launch_cell(backend, source, 2, options, **run)


def up(folder: RunFolder, wait_for: WaitFor) -> None:
    wait_for(lambda: all("up" in logs(folder, rank) for rank in (0, 1)), what="the ranks")
    wait_for(lambda: reader.status(folder).state is State.RUNNING, what="a running state")


def nothing_left(service: Service, folder: RunFolder, wait_for: WaitFor) -> None:
    wait_for(lambda: service.running() == [], 10, "the end of all ranks")
    assert service.jobs == [f"{folder.id}-0"]


def answered(folder: RunFolder, words: str, within_s: float = 0.5) -> Status:
    """The state says so within half a second of the request."""
    asked = time.monotonic()
    while True:
        status = reader.status(folder)
        if words in (status.reason or "") or status.state.ended:
            # On a machine with other work to do, the asking itself takes a while.
            assert time.monotonic() - asked < within_s, status
            return status
        assert time.monotonic() - asked < 30, story(folder)
        time.sleep(0.005)


@pytest.mark.parametrize("backend", ["far", "near"])
def test_a_backend_that_works(backend: str, service: Service, wait_for: WaitFor) -> None:
    folder = start(backend, SAYS)
    status = ended(folder)
    assert (status.state, status.reason) == (State.SUCCEEDED, None), story(folder)
    assert logs(folder, 1) == ["up"]
    assert (service.store / f"{folder.id}-0" / "released").exists()
    nothing_left(service, folder, wait_for)


@pytest.mark.parametrize("backend", ["far", "near"])
def test_one_in_three_calls_fails_and_the_run_succeeds(
    backend: str, service: Service, wait_for: WaitFor
) -> None:
    folder = start(backend, SAYS, fails=1 / 3)
    status = ended(folder)
    assert (status.state, status.reason) == (State.SUCCEEDED, None), story(folder)
    nothing_left(service, folder, wait_for)


@pytest.mark.parametrize("backend", ["far", "near"])
def test_one_in_three_calls_fails_and_the_run_is_stopped(
    backend: str, service: Service, wait_for: WaitFor
) -> None:
    folder = start(backend, UP, fails=1 / 3)
    up(folder, wait_for)
    folder.request("stop")
    answered(folder, "stopped by the user")
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user"), story(folder)
    nothing_left(service, folder, wait_for)


@pytest.mark.parametrize("stage", ["submitting", "running"])
def test_a_stop_is_answered_while_every_call_takes_its_time(
    stage: str, service: Service, wait_for: WaitFor
) -> None:
    folder = start("far", UP, takes=5)
    if stage == "running":
        up(folder, wait_for)
    else:
        wait_for(folder.state.exists, what="the state")
    folder.request("stop")
    answered(folder, "stopped by the user; waiting for the backend")
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user"), story(folder)
    wait_for(lambda: service.running() == [], 10, "the end of all ranks")
