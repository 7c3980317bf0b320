"""The time that ranks have to save after a stop, an interrupt and --timeout, with and without a flag."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from jupyter_dist.manage import stop
from tests.rigs.launching import ended, launch_cell, logs, story, until, until_up
from tests.rigs.stopwatch import Stopwatch, WaitFor
from tests.rigs.time_limit import TimeLimit

pytestmark = pytest.mark.usefixtures("warm")

SAVES = """
import signal, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
print("up")
while not asked:
    time.sleep(0.05)
print("saving")
time.sleep(SECONDS)
print("saved")
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
first = ["up"]
while True:
    try:
        if first:
            print(first.pop())
        time.sleep(600)
    except KeyboardInterrupt:
        print("no")
"""
IN_STEPS = """
import time
try:
    try:
        print("up")
        time.sleep(600)
    except KeyboardInterrupt:
        print("interrupted")
        time.sleep(600)
except SystemExit:
    print("ended")
    raise
"""


def saves(seconds: float) -> str:
    return SAVES.replace("SECONDS", str(seconds))


def all_logs(folder: RunFolder) -> set[tuple[str, ...]]:
    return {tuple(logs(folder, rank)) for rank in range(2)}


def until_all_say(folder: RunFolder, line: str) -> None:
    """Wait until all ranks have printed the line, and the supervisor knows when their time is over."""

    def said(status: Status) -> bool:
        return "to save" in (status.reason or "") and all(line in logs(folder, rank) for rank in range(2))

    until(folder, said, f"the line {line!r} and the time to save")


def test_a_rank_with_a_handler_may_save_longer_than_others() -> None:
    """5 s is the time of ranks without a handler. No flag is needed."""
    folder = launch_cell("local", saves(6))
    until_up(folder)
    folder.request("stop")
    status = until(folder, lambda status: "to save" in (status.reason or ""), "the time to save")
    assert re.fullmatch(
        r"stopped by the user; the ranks have until \d\d:\d\d:\d\d to save. Stop again to kill them now",
        str(status.reason),
    )
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user"), story(folder)
    assert all_logs(folder) == {("up", "saving", "saved")}


def test_the_user_s_own_time_is_kept(wait_for: WaitFor) -> None:
    folder = launch_cell("local", STUBBORN, stop_grace="0.5s")
    until_up(folder)
    watch = Stopwatch()
    folder.request("stop")
    status = ended(folder)
    assert watch.under(3)
    assert status.state is State.STOPPED
    assert {rank.signal for rank in status.ranks} == {signal.SIGKILL}


def test_a_second_stop_kills_at_once() -> None:
    folder = launch_cell("local", saves(600), stop_grace="10m")
    until_up(folder)
    folder.request("stop")
    until(folder, lambda status: "to save" in (status.reason or ""), "the time to save")
    watch = Stopwatch()
    folder.request("kill")
    status = ended(folder)
    assert watch.under(2)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user")
    assert {rank.signal for rank in status.ranks} == {signal.SIGKILL}


def test_a_second_stop_of_a_view_kills_and_a_double_click_does_not() -> None:
    folder = launch_cell("local", saves(600), stop_grace="10m")
    until_up(folder)
    for _ in range(2):
        stop.ask_to_stop(folder)
    until(folder, lambda status: "to save" in (status.reason or ""), "the time to save")
    assert not (folder.requests / "kill").exists()
    asked = folder.requests / "stop"
    os.utime(asked, (asked.stat().st_mtime - 2,) * 2)
    stop.ask_to_stop(folder)
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user")
    assert {rank.signal for rank in status.ranks} == {signal.SIGKILL}


@pytest.mark.parametrize("seconds", [0.5, 600])
def test_the_same_time_holds_at_a_timeout(seconds: float, tmp_path: Path) -> None:
    limit = TimeLimit(tmp_path)
    folder = launch_cell("local", saves(seconds), timeout=limit.seconds, stop_grace="10m", env=limit.env)
    until_up(folder)
    limit.pass_by()
    is_saved = seconds < 600
    if not is_saved:
        until_all_say(folder, "saving")
        limit.pass_by()
    status = ended(folder)
    assert (status.state, status.reason) == (State.FAILED, "not done within --timeout 1000 s"), story(folder)
    assert all_logs(folder) == {("up", "saving", "saved") if is_saved else ("up", "saving")}


def test_after_an_interrupt_comes_sigterm_and_then_sigkill(tmp_path: Path) -> None:
    limit = TimeLimit(tmp_path)
    source = STUBBORN.replace("signal.SIG_IGN", "lambda *_: print('told')")
    folder = launch_cell("local", source, stop_grace="10m", env=limit.env)
    until_up(folder)
    folder.request("interrupt")
    until_all_say(folder, "no")
    limit.pass_by()
    until_all_say(folder, "told")

    def is_over(status: Status) -> bool:
        limit.pass_by()  # each time: the ranks' line may come before the supervisor's time begins
        return status.state.ended

    status = until(folder, is_over, "the run's end")
    assert (status.state, status.reason) == (State.STOPPED, "interrupted by the user"), story(folder)
    assert all_logs(folder) == {("up", "no", "told")}
    log = folder.supervisor_log.read_text()
    assert log.index("interrupting the ranks") > 0
    assert {rank.signal for rank in status.ranks} == {signal.SIGKILL}


def test_a_stop_ends_the_time_after_an_interrupt() -> None:
    folder = launch_cell("local", IN_STEPS, stop_grace="10m")
    until_up(folder)
    folder.request("interrupt")
    until(folder, lambda _: all("interrupted" in logs(folder, rank) for rank in range(2)), "the interrupt")
    watch = Stopwatch()
    folder.request("stop")
    status = ended(folder)
    assert watch.under(2)
    assert (status.state, status.reason) == (State.STOPPED, "interrupted by the user"), story(folder)
    assert all_logs(folder) == {("up", "interrupted", "ended")}


def test_an_interrupt_that_the_cell_does_not_catch_is_shown_in_its_log() -> None:
    folder = launch_cell("local", "import time\nprint('up')\ntime.sleep(600)")
    until_up(folder)
    folder.request("interrupt")
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "interrupted by the user"), story(folder)
    assert {rank.state for rank in status.ranks} == {State.STOPPED}
    assert "KeyboardInterrupt" in logs(folder, 0)
