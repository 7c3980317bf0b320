"""Requests for stacks do not change what a rank does."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_dist.job import State
from jupyter_dist.record.failures import stacks
from jupyter_dist.record.outputs.results import Results
from jupyter_dist.worker.stack_probe import IN_C_SLEEP
from tests.rigs.launching import ended, launch_cell, story

C_SLEEP = "import ctypes\nctypes.CDLL(None).sleep(3)"
"""Its value is the number of seconds that were left: 0 if nobody ended the sleep."""
USLEEP = "import ctypes, time\nbegan = time.monotonic()\nctypes.CDLL(None).usleep(3_000_000)\n"
USLEEP += "round(time.monotonic() - began) - 3"


@pytest.mark.parametrize("source", [C_SLEEP, USLEEP])
@pytest.mark.parametrize("backend", ["local", "torchrun"])
def test_a_sleep_of_c_code_is_not_cut_short(own_folders: Path, source: str, backend: str) -> None:
    run = launch_cell(backend, source, 2, stall_timeout=1)
    status = ended(run)
    assert status.state is State.SUCCEEDED, story(run)
    assert list(Results(run, status, 2)) == [0, 0]
    found, _ = stacks.kept(run)
    assert [dump.main.frames[-1].function for dump in found.dumps.values()] == [IN_C_SLEEP] * 2


def test_a_sleep_of_python_shows_its_line_and_goes_on(own_folders: Path) -> None:
    source = "import time\nbegan = time.monotonic()\ntime.sleep(3)\ntime.monotonic() - began >= 3"
    run = launch_cell("local", source, 2, stall_timeout=1)
    status = ended(run)
    assert list(Results(run, status, 2)) == [True, True]
    found, _ = stacks.kept(run)
    assert [dump.main.frames[-1].line for dump in found.dumps.values()] == [3, 3]
