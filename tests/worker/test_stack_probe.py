"""Requests for stacks do not change what a rank does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from jupyter_dist.record.failures import stacks
from jupyter_dist.record.failures.stacks import Frame
from jupyter_dist.record.outputs.results import Results
from jupyter_dist.worker.stack_probe import IN_C_SLEEP
from tests.rigs.launching import ended, launch_cell, logs, story, until

pytestmark = pytest.mark.usefixtures("warm")

C_SLEEP = """
import ctypes, os, time
libc, found = ctypes.CDLL(None), set()
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
def test_a_sleep_of_c_code_is_not_cut_short(own_folders: Path, enough: Path, backend: str) -> None:
    run = launch_cell(backend, C_SLEEP, 2, names={"ENOUGH": str(enough)})
    status = until_seen(run, enough, lambda frame: frame.function == IN_C_SLEEP)
    assert status.state is State.SUCCEEDED, story(run)
    assert list(Results(run, status, 2)) == [{(0, True)}] * 2


def test_a_sleep_of_python_shows_its_line_and_goes_on(own_folders: Path, enough: Path) -> None:
    run = launch_cell("local", PYTHON_SLEEP, 2, names={"ENOUGH": str(enough)})
    status = until_seen(run, enough, lambda frame: frame.line == 7)
    assert list(Results(run, status, 2)) == [{True}] * 2
