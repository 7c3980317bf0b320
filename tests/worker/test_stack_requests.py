"""Requests for stacks are answered, and do not change what a rank does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from jupyter_dist.manage import stack_request
from jupyter_dist.record.failures import stacks
from jupyter_dist.record.failures.stacks import Frame
from jupyter_dist.record.outputs.results import Results
from jupyter_dist.worker import stack_signals
from jupyter_dist.worker.stack_signals import IN_C_SLEEP
from tests.rigs.launching import ended, launch_cell, logs, story, until

pytestmark = pytest.mark.usefixtures("warm")

C_SLEEP = """
import ctypes, os, time
libc, found = ctypes.KIND(None), set()
print("up")
while not os.path.exists(ENOUGH):
    began = time.monotonic()
    left = libc.sleep(3) if os.environ["RANK"] == "0" else libc.usleep(3_000_000)
    found.add((left, time.monotonic() - began >= 3))
found
"""
"""If somebody ends the sleep, `sleep` returns the seconds that were left, and `usleep` returns -1."""


PYTHON_SLEEP = """
import os, time
print("up")
found = set()
while not os.path.exists(ENOUGH):
    began = time.monotonic()
    time.sleep(3)
    found.add(time.monotonic() - began >= 3)
found
"""


@pytest.fixture
def enough(tmp_path: Path) -> Path:
    return tmp_path / "enough"


def until_asleep(run: RunFolder) -> None:
    """Wait until all ranks sleep. A rank that is about to sleep may get a signal as it begins."""
    until(
        run,
        lambda status: all(rank.pid and stack_signals._is_in_c_sleep(rank.pid) for rank in status.ranks),
        "the first sleep",
    )


def until_seen(run: RunFolder, enough: Path, at: Callable[[Frame], bool]) -> Status:
    """Ask for stacks until all ranks were seen at a frame; then wait for the run's end."""
    until(run, lambda _: [logs(run, rank) for rank in (0, 1)] == [["up"]] * 2, "both ranks")
    asked = 0.0

    def seen(_: Status) -> bool:
        nonlocal asked
        found = stacks.kept(run)[0]
        if len(found.dumps) == 2 and all(at(dump.main.frames[-1]) for dump in found.dumps.values()):
            return True
        if time.monotonic() - asked > 5:
            run.request("stacks")
            asked = time.monotonic()
        return False

    until(run, seen, "the stacks of both in their sleep")
    enough.touch()
    return ended(run)


@pytest.mark.parametrize("backend", ["local", "torchrun"])
def test_a_sleep_of_c_code_shows_its_line_and_is_not_cut_short(
    own_folders: Path, enough: Path, backend: str
) -> None:
    run = launch_cell(backend, C_SLEEP.replace("KIND", "CDLL"), 2, names={"ENOUGH": str(enough)})
    until_asleep(run)
    status = until_seen(run, enough, lambda frame: frame.line == 7)
    assert status.state is State.SUCCEEDED, story(run)
    assert list(Results(run, status, 2)) == [{(0, True)}] * 2


def test_a_sleep_of_c_code_that_holds_the_gil_is_named(own_folders: Path, enough: Path) -> None:
    run = launch_cell("local", C_SLEEP.replace("KIND", "PyDLL"), 2, names={"ENOUGH": str(enough)})
    until_asleep(run)
    status = until_seen(run, enough, lambda frame: frame.function == IN_C_SLEEP)
    assert list(Results(run, status, 2)) == [{(0, True)}] * 2


def test_a_sleep_of_python_shows_its_line_and_goes_on(own_folders: Path, enough: Path) -> None:
    run = launch_cell("local", PYTHON_SLEEP, 2, names={"ENOUGH": str(enough)})
    status = until_seen(run, enough, lambda frame: frame.line == 7)
    assert list(Results(run, status, 2)) == [{True}] * 2


SHORT_THREADS = """
import os, threading

def deep(calls):
    return deep(calls - 1) if calls else os.getpid()

def begin_and_end():
    while not os.path.exists(ENOUGH):
        threads = [threading.Thread(target=deep, args=(50,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

others = [threading.Thread(target=begin_and_end) for _ in range(3)]
for other in others:
    other.start()
print("up")
for other in others:
    other.join()
"""


def test_threads_that_begin_and_end_while_stacks_are_written_do_not_crash_the_rank(
    own_folders: Path, enough: Path
) -> None:
    run = launch_cell("local", SHORT_THREADS, 1, names={"ENOUGH": str(enough)})
    until(run, lambda _: logs(run, 0) == ["up"], "the rank's threads")
    for _ in range(20):
        shown = stack_request.take(run, 60.0, all_threads=True)
        assert not shown.dumps[0].is_partial
        assert str(shown).count("in begin_and_end") == 3
        assert "stacks_file" not in str(shown)
    enough.touch()
    assert ended(run).state is State.SUCCEEDED, story(run)


HELD = """
import ctypes, sys, threading, time, traceback

def holds_the_gil():
    while "waits_here" not in str(traceback.extract_stack(sys._current_frames()[main])):
        time.sleep(0.01)
    ctypes.PyDLL(None).pause()

def waits_here():
    other.join()

print("up")
main = threading.get_ident()
other = threading.Thread(target=holds_the_gil)
other.start()
waits_here()
"""


def test_a_thread_that_holds_the_gil_is_shown_beside_the_main_thread(own_folders: Path) -> None:
    run = launch_cell("local", HELD, 1)
    until(run, lambda _: logs(run, 0) == ["up"], "the rank")
    text = ""

    def both_are_shown(_: Status) -> bool:
        nonlocal text
        text = str(stack_request.take(run, all_threads=True))
        return "waits_here" in text and "holds_the_gil" in text

    until(run, both_are_shown, "the stacks of both threads")
    main, _, others = text.partition("rank 0, thread 1")
    assert "in waits_here" in main
    assert "in holds_the_gil" in others
    run.request("kill")
    ended(run)
