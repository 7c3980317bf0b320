"""Requests for stacks do not change what a rank does."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_dist.job import State
from jupyter_dist.record.failures import stacks
from jupyter_dist.record.outputs.results import Results
from jupyter_dist.worker.stack_probe import IN_C_SLEEP
from tests.rigs.launching import ended, launch_cell, story

pytestmark = pytest.mark.usefixtures("warm")

C_SLEEP = """
import ctypes, os, time
libc, began = ctypes.CDLL(None), time.monotonic()
left = libc.sleep(3) if os.environ["RANK"] == "0" else libc.usleep(3_000_000)
left, time.monotonic() - began >= 3
"""
"""If somebody ends the sleep, `sleep` returns the seconds that were left, and `usleep` returns -1."""


@pytest.mark.parametrize("backend", ["local", "torchrun"])
def test_a_sleep_of_c_code_is_not_cut_short(own_folders: Path, backend: str) -> None:
    run = launch_cell(backend, C_SLEEP, 2, stall_timeout=1)
    status = ended(run)
    assert status.state is State.SUCCEEDED, story(run)
    assert list(Results(run, status, 2)) == [(0, True)] * 2
    found, _ = stacks.kept(run)
    assert [dump.main.frames[-1].function for dump in found.dumps.values()] == [IN_C_SLEEP] * 2


def test_a_sleep_of_python_shows_its_line_and_goes_on(own_folders: Path) -> None:
    source = "import time\nbegan = time.monotonic()\ntime.sleep(3)\ntime.monotonic() - began >= 3"
    run = launch_cell("local", source, 2, stall_timeout=1)
    status = ended(run)
    assert list(Results(run, status, 2)) == [True, True]
    found, _ = stacks.kept(run)
    assert [dump.main.frames[-1].line for dump in found.dumps.values()] == [3, 3]
