"""Supervisors that are killed at random moments, while what they watch is reached through a store alone."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist import start
from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.run_control import Runs, story
from jupyter_dist.conformance.target import Target
from jupyter_dist.errors import DistError
from jupyter_dist.job import State
from jupyter_dist.showing.run import Run
from tests.rigs.mailbox.platform import Camp, camp

MOST_OF_ONE = 8
"""Of one run; then it may come to its end."""
LINES = 400
CELL = f"""
import time
for number in range({LINES}):
    print("line", number)
    time.sleep(0.02)
number
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Camp]:
    with camp(tmp_path_factory.mktemp("tents")) as made:
        yield made


def kill_supervisor(run: Run) -> bool:
    """False where there is none, or none any more."""
    supervisor = run.status.supervisor
    if supervisor is None or run.state.ended:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor.pid, signal.SIGKILL)
        return True
    return False


def all_lines(run: Run, rank: int) -> list[str]:
    return re.findall(r"^line \d+$", run.log(rank), re.MULTILINE)


@pytest.mark.race
@pytest.mark.parametrize("most", [6, pytest.param(50, marks=pytest.mark.timeout(2600))])
def test_supervisors_that_die_at_random_moments(
    there: Camp, most: int, dice: random.Random, tmp_path: Path
) -> None:
    """From the first moment of a submission on: every line once and in order, nothing runs unknown."""
    target = Target("tents", np=3, flags=there.flags, startup_s=12.0, lives=there.lives)
    runs = Runs(target, tmp_path / "runs")
    deaths = whole = 0
    try:
        while deaths < most or not whole:
            run, began, before = runs.start(CELL), time.monotonic(), deaths
            while not run.state.ended:
                if deaths < min(most, before + MOST_OF_ONE):
                    end = time.monotonic() + dice.choice((dice.uniform(0, 3), dice.uniform(3, 12)))
                    while time.monotonic() < end and not run.state.ended:
                        time.sleep(0.01)
                    deaths += kill_supervisor(run)
                    attach(runs, run)
                else:
                    attach(runs, run)
                    time.sleep(0.05)
                    assert time.monotonic() < began + 300, story(run)
            if run.state is State.SUCCEEDED:
                whole += 1
                for rank in range(3):
                    assert all_lines(run, rank) == [f"line {number}" for number in range(LINES)], story(run)
                assert list(run.results) == [LINES - 1] * 3
            else:
                # It died before the ranks were started: nothing of it may run then.
                assert [all_lines(run, rank) for rank in range(3)] == [[]] * 3, story(run)
                assert "host h1" in str(run.status.reason), story(run)
            deadline = Deadline()
            while there.left():
                assert not deadline.passed(), (there.left(), story(run))
                time.sleep(0.1)
    finally:
        runs.close()
    print(f"{deaths} deaths, {whole} whole runs")


def attach(runs: Runs, run: Run) -> None:
    deadline = Deadline()
    while run.state is State.UNWATCHED or (run.state is State.PENDING and run.status.supervisor is None):
        with runs.here(), contextlib.suppress(DistError):
            start.attach(run.id)
        assert not deadline.passed(), story(run)
        time.sleep(0.02)
