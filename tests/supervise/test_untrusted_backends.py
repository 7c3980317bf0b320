"""The supervisor trusts no backend: calls that fail, block, break and die; a submission that is cut off."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.errors import LaunchError
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from jupyter_dist.launch import submission
from jupyter_dist.record import reader
from tests.rigs.answering import User
from tests.rigs.far_service import Service
from tests.rigs.launching import ended, launch_cell, logs, story, until_up
from tests.rigs.stopwatch import Stopwatch, WaitFor

pytestmark = pytest.mark.usefixtures("warm")

UP = "import time\nprint('up')\ntime.sleep(600)"
SAYS = "print('up')\n42"


@pytest.fixture
def service(tmp_path: Path, dice: random.Random) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAR_SEED", str(dice.random()))
        found = Service(tmp_path / "store", patch)
        yield found
        found.close()


def start(backend: str, source: str, **options: Any) -> RunFolder:
    run = {name: options.pop(name) for name in ("max_restarts", "timeout", "env") if name in options}
    return launch_cell(backend, source, 2, options, **run)


def nothing_left(service: Service, folder: RunFolder, wait_for: WaitFor) -> None:
    wait_for(lambda: service.running() == [], "the end of all ranks")
    assert service.jobs == [f"{folder.id}-0"]


def behave(service: Service, **options: str) -> None:
    """Give the backend of the first job other options. It reads them at each call, and never half a file."""
    place = service.store / service.jobs[0]
    (place / ".options.json").write_text(json.dumps(options))
    (place / ".options.json").rename(place / "options.json")


def answered(folder: RunFolder, words: str, within_s: float = 0.5) -> Status:
    """The state says so within half a second of the request."""
    watch, deadline = Stopwatch(), time.monotonic() + 30
    while True:
        status = reader.status(folder)
        if words in (status.reason or "") or status.state.ended:
            assert watch.under(within_s), status
            return status
        assert time.monotonic() < deadline, story(folder)
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
    until_up(folder)
    folder.request("stop")
    answered(folder, "stopped by the user")
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user"), story(folder)
    nothing_left(service, folder, wait_for)


@pytest.mark.parametrize("stage", ["submitting", "running"])
def test_a_stop_is_answered_while_every_call_takes_its_time(
    stage: str, service: Service, wait_for: WaitFor
) -> None:
    folder = start("far", UP, takes=2)
    if stage == "running":
        until_up(folder)
    else:
        wait_for(folder.state.exists, what="the state")
    folder.request("stop")
    answered(folder, "stopped by the user; waiting for the backend")
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user"), story(folder)
    wait_for(lambda: service.running() == [], "the end of all ranks")


@pytest.mark.parametrize(
    ("call", "backend"),
    [
        *((call, "far") for call in ("submit", "submitted", "stop", "ask", "release")),
        *((call, "near") for call in ("submit", "submitted", "poll", "stop", "ask", "release")),
    ],
)
def test_what_does_not_pass_ends_the_ranks_first(
    backend: str, call: str, service: Service, wait_for: WaitFor
) -> None:
    folder = start(backend, UP if call in ("poll", "stop", "ask") else SAYS, breaks=call)
    if call in ("stop", "ask"):
        until_up(folder)
        folder.request("stacks")
        wait_for(lambda: call == "stop" or "`ask` failed" in folder.supervisor_log.read_text(), what="ask")
        folder.request("stop")
    status = ended(folder)
    told = folder.supervisor_log.read_text()
    if call in ("stop", "ask"):
        # The gentle way is broken, and the other one is not; stacks are worth nobody's training.
        assert (status.state, status.reason) == (State.STOPPED, "stopped by the user"), story(folder)
    elif call == "release":
        assert status.state is State.SUCCEEDED, story(folder)
    else:
        name = "submit" if call.startswith("submit") else call
        assert status.state is State.FAILED
        assert status.reason is not None
        assert f"the backend's `{name}` failed: KeyError" in status.reason
    assert "Traceback" in told
    assert "no field 'phase'" in told
    wait_for(lambda: service.running() == [], "the end of all ranks")
    assert len(service.jobs) == (0 if call == "submit" else 1)


def test_what_could_not_be_released_is_named(service: Service) -> None:
    """Its handle stays, so that somebody can find what is reserved and paid for."""
    folder = start("far", SAYS, breaks="release")
    status = ended(folder)
    name = f"{folder.id}-0"
    assert status.state is State.SUCCEEDED
    assert status.handle == {"name": name}
    assert status.told is not None
    assert status.told.startswith(f"What the run has reserved may still be reserved (name {name}). Check ")
    assert "no field 'phase'" in status.told


def test_a_release_that_takes_its_time_is_shown_and_can_be_ended(service: Service, wait_for: WaitFor) -> None:
    """Checkpoints may arrive for hours. Meanwhile the heartbeat goes on, and a user who kills is obeyed."""
    folder = start("near", SAYS, hangs="release")

    def shown() -> Status | None:
        status = reader.status(folder)
        return status if "releasing the hosts" in (status.reason or "") else None

    first = wait_for(shown, what="the reason")
    assert first.state is State.RUNNING
    wait_for(lambda: reader.status(folder).heartbeat > first.heartbeat + 1, what="heartbeats")
    watch = Stopwatch()
    folder.request("kill")
    status = ended(folder)
    assert watch.under(1.0)
    assert (status.state, status.reason) == (State.SUCCEEDED, None), story(folder)
    assert status.told == "The user ended the wait for the hosts. Files may be left there."


def test_ranks_that_cannot_be_ended_are_never_called_ended(service: Service, wait_for: WaitFor) -> None:
    folder = start("far", UP, breaks="poll,stop,kill")
    status = wait_for(
        lambda: (found := reader.status(folder)).state is State.UNWATCHED and found, what="unwatched"
    )
    assert status.handle == {"name": f"{folder.id}-0"}
    assert status.reason.startswith("the backend's `poll` failed: KeyError"), status
    assert "could not be learned" in status.reason
    assert len(service.running()) == 2
    behave(service)  # somebody has mended the service
    wait_for(lambda: not reader.supervised(status), what="the supervisor's end")
    assert submission.resume(folder)
    folder.request("stop")
    assert ended(folder).state is State.STOPPED, story(folder)
    nothing_left(service, folder, wait_for)


def test_a_poll_that_broke_is_asked_again_whether_the_ranks_have_ended(
    service: Service, wait_for: WaitFor
) -> None:
    folder = start("far", UP)
    until_up(folder)
    behave(service, breaks="poll")
    wait_for(lambda: "`poll` failed" in (reader.status(folder).reason or ""), what="the reason")
    behave(service)
    status = ended(folder)
    assert status.state is State.FAILED
    assert (status.reason or "").startswith("the backend's `poll` failed: KeyError")
    assert {rank.state for rank in status.ranks} == {State.STOPPED}
    assert status.handle == {"name": service.jobs[0]}
    nothing_left(service, folder, wait_for)


def test_what_passes_is_shown_until_it_has(service: Service, wait_for: WaitFor) -> None:
    folder = start("far", UP)
    until_up(folder)
    behave(service, away="poll")
    wait_for(
        lambda: (reader.status(folder).reason or "").startswith(
            "the backend does not answer (ConnectionError: 503); trying again, "
        ),
        what="the trouble",
    )
    assert reader.status(folder).state is State.RUNNING
    behave(service)
    wait_for(lambda: reader.status(folder).reason is None, "the end of the trouble")
    folder.request("stop")
    assert ended(folder).state is State.STOPPED


def test_a_service_that_stays_away_leaves_a_run_that_nobody_watches(
    service: Service, wait_for: WaitFor
) -> None:
    folder = start("far", UP, grace=1)
    until_up(folder)
    behave(service, away="poll,stop,kill")
    wait_for(lambda: reader.status(folder).state is State.UNWATCHED, what="unwatched")
    status = reader.status(folder)
    assert (status.reason or "").startswith("the backend has not answered for 1 s (ConnectionError: 503)")
    behave(service)
    wait_for(lambda: not reader.supervised(status), what="the supervisor's end")
    assert submission.resume(folder)
    wait_for(lambda: reader.status(folder).state is State.RUNNING, what="a running state")
    folder.request("stop")
    assert ended(folder).state is State.STOPPED
    nothing_left(service, folder, wait_for)


def test_a_refusal_is_what_the_run_says(service: Service) -> None:
    folder = start("far", SAYS, refuses=True)
    status = ended(folder)
    assert (status.state, status.reason) == (
        State.FAILED,
        "no such instance type: 'huge'. Nothing was started.",
    )
    assert service.jobs == []


def test_a_place_in_a_queue_is_shown_and_no_clock_runs(service: Service, wait_for: WaitFor) -> None:
    service.hold.set()
    folder = start("far", UP, timeout=1.0)
    wait_for(lambda: reader.status(folder).reason == "queue position 3", what="the place in the queue")
    time.sleep(1.5)  # longer than --timeout
    status = reader.status(folder)
    assert (status.state, status.started) == (State.PENDING, None)
    service.hold.clear()
    status = ended(folder)
    assert (status.state, status.reason) == (State.FAILED, "not done within --timeout 1 s")
    assert status.started is not None
    nothing_left(service, folder, wait_for)


def test_a_run_is_stopped_in_the_queue(service: Service, wait_for: WaitFor) -> None:
    service.hold.set()
    folder = start("far", UP)
    wait_for(lambda: reader.status(folder).reason == "queue position 3", what="the place in the queue")
    folder.request("stop")
    status = ended(folder)
    assert (status.state, status.started) == (State.STOPPED, None), story(folder)


def test_a_kill_does_not_wait_for_a_submission(service: Service, wait_for: WaitFor) -> None:
    folder = start("far", UP, takes=600)
    wait_for(folder.state.exists, what="the state")
    folder.request("kill")
    answered(folder, "killed by the user")
    # `find` takes as long: nothing more can be learned of a submission that was cut off.
    status = reader.status(folder)
    assert not status.state.ended
    supervisor = status.supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)


def test_the_backends_process_dies_again_and_again(service: Service, wait_for: WaitFor) -> None:
    """As Ray's client ends its own process when the head of its cluster is lost."""
    folder = start("far", UP, dies=1 / 3)
    until_up(folder)
    folder.request("stop")
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user"), story(folder)
    nothing_left(service, folder, wait_for)


def _carrier(folder: RunFolder) -> int | None:
    found = reader.status(folder).carrier
    return None if found is None else found[0]


@pytest.mark.race
def test_the_backends_process_is_killed_at_random(
    service: Service, dice: random.Random, wait_for: WaitFor
) -> None:
    for _ in range(4):
        folder = start("far", SAYS, takes=0.05)
        wait_for(lambda folder=folder: folder.state.exists() and _carrier(folder), what="the carrier")
        for _ in range(3):
            time.sleep(dice.uniform(0, 0.4))
            pid = _carrier(folder)
            if pid is not None and reader.start_ticks(pid) is not None:
                os.killpg(pid, signal.SIGKILL)
        status = ended(folder)
        assert (status.state, status.reason) == (State.SUCCEEDED, None), story(folder)
        assert [logs(folder, rank) for rank in (0, 1)] == [["up"]] * 2
        wait_for(lambda: service.running() == [], "the end of all ranks")
    assert len(service.jobs) == 4


@pytest.mark.parametrize("stage", ["before", "after"])
def test_a_supervisor_that_is_killed_while_it_submits(
    stage: str, service: Service, wait_for: WaitFor
) -> None:
    folder = start("far", SAYS, kills=stage)
    wait_for(lambda: folder.state.exists() and reader.status(folder).state is State.UNWATCHED, what="its end")
    assert reader.status(folder).handle is None
    assert submission.resume(folder)
    status = ended(folder)
    assert (status.state, status.reason) == (State.SUCCEEDED, None), story(folder)
    nothing_left(service, folder, wait_for)


def test_a_supervisor_that_is_killed_once_the_hosts_are_given_back(
    service: Service, wait_for: WaitFor
) -> None:
    """Nobody can ask them again how the ranks have ended."""
    folder = start("far", SAYS, kills="released")
    wait_for((service.store / "killed").exists, what="the kill")
    wait_for(lambda: reader.status(folder).state is State.UNWATCHED, what="its end")
    assert submission.resume(folder)
    status = ended(folder)
    assert (status.state, status.reason, status.verdict) == (State.SUCCEEDED, None, None), story(folder)
    assert [rank.state for rank in status.ranks] == [State.SUCCEEDED] * 2
    nothing_left(service, folder, wait_for)


def test_what_was_never_started_needs_the_values_of_variables(service: Service, wait_for: WaitFor) -> None:
    folder = start("far", SAYS, kills="before", env={"TOKEN": "hush"})
    wait_for(lambda: folder.state.exists() and reader.status(folder).state is State.UNWATCHED, what="its end")
    assert submission.resume(folder)
    status = ended(folder)
    assert status.state is State.FAILED
    assert status.reason == "it was never started, and cannot be now: the values of --env are in no file"
    assert service.jobs == []


def test_a_resumed_supervisor_does_not_count_the_time_at_prompts(service: Service, wait_for: WaitFor) -> None:
    service.silent.set()
    folder = start("far", "input()", timeout=3)
    User(folder, 0, 1).prompt()
    service.silent.clear()  # the time limit begins now, and does not hold for the start of two Pythons
    waits = "ranks 0-1 wait for input (to answer: %dist debug)"
    status = wait_for(lambda: (found := reader.status(folder)).held_s > 4 and found, what="a long wait")
    assert (status.state, status.reason) == (State.RUNNING, waits)
    os.kill(status.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: reader.status(folder).state is State.UNWATCHED, what="its end")
    assert submission.resume(folder)
    wait_for(lambda: reader.status(folder).held_s > status.held_s + 4, what="a long wait again")
    user = User(folder, 0, 1)
    user.say("done", [0])
    one = "rank 1 waits for input (to answer: %dist debug)"
    wait_for(lambda: reader.status(folder).reason == one, what="the reason")
    User(folder, 1).say("done")
    status = ended(folder)
    assert (status.state, status.reason) == (State.SUCCEEDED, None), story(folder)
    nothing_left(service, folder, wait_for)


def test_the_reason_of_a_resumed_run_names_no_rank_that_waited(service: Service, wait_for: WaitFor) -> None:
    folder = start("far", "import time\ninput()\nprint('up')\ntime.sleep(600)")
    User(folder, 0, 1).prompt()
    status = wait_for(lambda: len((found := reader.status(folder)).waits) == 2 and found, what="the waits")
    os.kill(status.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: reader.status(folder).state is State.UNWATCHED, what="its end")
    assert submission.resume(folder)
    wait_for(lambda: reader.status(folder).supervisor != status.supervisor, what="another supervisor")
    User(folder, 0, 1).say("go on")
    until_up(folder)
    wait_for(lambda: not reader.status(folder).waits, what="the ranks to continue")
    assert reader.status(folder).reason is None
    folder.request("stop")
    assert ended(folder).state is State.STOPPED
    nothing_left(service, folder, wait_for)


@pytest.mark.race
@pytest.mark.parametrize("part", range(5))
def test_a_supervisor_that_is_killed_at_random(
    part: int, service: Service, dice: random.Random, wait_for: WaitFor
) -> None:
    kills = 4
    for number in range(kills):
        folder = start("far", SAYS, takes=0.05)
        wait_for(folder.state.exists, what="the state")
        time.sleep(dice.uniform(0, 1.2))
        status = reader.status(folder)
        if not status.state.ended:
            assert status.supervisor is not None
            os.kill(status.supervisor.pid, signal.SIGKILL)
            wait_for(lambda status=status: not reader.supervised(status), what="its end")
            if not reader.status(folder).state.ended:
                assert reader.status(folder).state is State.UNWATCHED
                assert submission.resume(folder)
        status = ended(folder)
        assert status.state is State.SUCCEEDED, (number, story(folder))
        assert [logs(folder, rank) for rank in (0, 1)] == [["up"]] * 2
    wait_for(lambda: service.running() == [], "the end of all ranks")
    assert len(service.jobs) == kills


def test_a_run_is_taken_on_with_its_own_python(service: Service, wait_for: WaitFor, tmp_path: Path) -> None:
    python = tmp_path / "python"
    folder = start("far", UP)
    until_up(folder)
    status = reader.status(folder)
    assert status.supervisor is not None
    os.kill(status.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: reader.status(folder).state is State.UNWATCHED, what="its end")
    job = folder.job.read_text()
    folder.job.write_text(json.dumps({**json.loads(job), "python": str(python)}))
    with pytest.raises(LaunchError, match=r"its Python .* no longer exists"):
        submission.resume(folder)
    python.write_text(f'#!/bin/sh\ntouch "{tmp_path}/used"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    assert submission.resume(folder)
    assert (tmp_path / "used").exists()
    folder.request("stop")
    assert ended(folder).state is State.STOPPED
    nothing_left(service, folder, wait_for)
