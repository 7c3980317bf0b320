"""Ranks whose cell has ended, and whose exit handlers, threads or figures hang until a time limit."""

from __future__ import annotations

import dataclasses
import signal
import time
from pathlib import Path

import pytest

from jupyter_dist.job import RankState, State
from jupyter_dist.record.failures.card import card
from jupyter_dist.record.failures.stacks import kept
from jupyter_dist.supervise.stack_arrival import StackArrival
from tests.rigs.launching import ended, launch_cell, story, until, until_up
from tests.rigs.run_maker import RunMaker
from tests.rigs.time_limit import TimeLimit

pytestmark = pytest.mark.usefixtures("warm")

# Each prints a line when it hangs.
HANDLER = """import atexit, time
def late():
    print("up")
    time.sleep(600)
atexit.register(late)
"""
C_HANDLER = "import atexit, time\natexit.register(time.sleep, 600)\natexit.register(print, 'up')"
THREAD = """import sys, threading, time
def late():
    while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "_shutdown":
        time.sleep(0.01)
    print("up")
    time.sleep(600)
threading.Thread(target=late).start()
"""
FIGURE = """import time
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
class Late(Line2D):
    def draw(self, renderer):
        print("up")
        time.sleep(600)
plt.gca().add_line(Late([0], [0]))
raise ValueError("so")
"""


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (HANDLER, "at In[1], line 4: time.sleep(600), in an exit handler, after the end of the cell"),
        (C_HANDLER, "in an exit handler, after the end of the cell"),
        (THREAD, "waiting for a thread, after the end of the cell"),
    ],
)
def test_a_rank_that_hangs_at_its_end_has_not_succeeded(tmp_path: Path, source: str, place: str) -> None:
    limit = TimeLimit(tmp_path)
    run = launch_cell("local", source, 2, timeout=limit.seconds, env=limit.env)
    until_up(run)
    limit.pass_by()
    status = ended(run)
    assert status.state is State.FAILED, story(run)
    assert [rank.state for rank in status.ranks] == [State.STOPPED] * 2, story(run)
    found = card(run, status)
    assert found is not None
    assert found.what == "not done within --timeout 1000 s"
    assert found.places == (f"ranks 0-1 were {place}",)


def test_a_failed_rank_that_still_shows_its_figures_is_not_in_a_library(tmp_path: Path) -> None:
    run = launch_cell("local", FIGURE, 1)
    status = ended(run)
    assert status.state is State.FAILED, story(run)
    shown = str(kept(run)[0])
    assert "showing the open figures, after the end of the cell" in shown, story(run)
    assert "matplotlib" not in shown, shown


def test_a_rank_that_ignores_sigterm_is_named_with_the_time_that_it_took(tmp_path: Path) -> None:
    source = (
        "import os, signal, time\nif os.environ['RANK'] == '1':\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up')\ntime.sleep(600)"
    )
    limit = TimeLimit(tmp_path)
    run = launch_cell("local", source, 2, timeout=limit.seconds, stop_grace="10m", env=limit.env)
    until_up(run)
    passed = time.time()
    limit.pass_by()
    until(run, lambda status: status.ranks[0].state.ended, "the end of rank 0")
    run.request("kill")
    # The clock of the day did not go forward with the limit's.
    status = dataclasses.replace(ended(run), started=passed - limit.seconds)
    assert status.ranks[1].signal == signal.SIGKILL, story(run)
    found = card(run, status)
    assert found is not None
    (cause,) = found.causes
    assert cause.startswith("Rank 1 did not end after SIGTERM. The supervisor killed it ")
    assert cause.endswith(" s after the time limit.")
    assert status.ended is not None
    assert float(cause.split()[-6]) == pytest.approx(status.ended - passed, abs=0.1)


def test_the_supervisor_waits_for_stacks_no_longer_than_they_take(own_folders: Path) -> None:
    made = RunMaker(own_folders, 3)
    made.rank(0).stacks.write_text("of an earlier request\n")
    states = [State.RUNNING, State.RUNNING, State.SUCCEEDED]
    arrival = StackArrival(made.folder, 0, [RankState(rank, state) for rank, state in enumerate(states)])
    assert not arrival.complete()
    for rank in (0, 1):
        with made.rank(rank).stacks.open("a") as file:
            file.write("Thread 0x1 (most recent call first):\n")
        assert not arrival.complete()
    assert arrival.complete()
