"""Ranks whose cell has ended, and whose exit handlers or threads hang until a time limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_dist.job import RankState, State
from jupyter_dist.record.failures.card import card
from jupyter_dist.supervise.stack_arrival import StackArrival
from tests.rigs.launching import ended, launch_cell, story
from tests.rigs.run_maker import RunMaker

pytestmark = pytest.mark.usefixtures("warm")

HANDLER = "import atexit, time\ndef late():\n    time.sleep(600)\natexit.register(late)\n'done'"
C_HANDLER = "import atexit, time\natexit.register(time.sleep, 600)\n'done'"
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n'done'"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (HANDLER, "at In[1], line 3: time.sleep(600), in an exit handler, after the end of the cell"),
        (C_HANDLER, "in an exit handler, after the end of the cell"),
        (THREAD, "waiting for a thread, after the end of the cell"),
    ],
)
def test_a_rank_that_hangs_at_its_end_has_not_succeeded(own_folders: Path, source: str, place: str) -> None:
    run = launch_cell("local", source, 2, timeout=2)
    status = ended(run)
    assert status.state is State.FAILED, story(run)
    assert [rank.state for rank in status.ranks] == [State.STOPPED] * 2, story(run)
    found = card(run, status)
    assert found is not None
    assert found.what == "not done within --timeout 2 s"
    assert found.places == (f"ranks 0-1 were {place}",)


def test_a_rank_that_ignores_sigterm_is_named_with_the_time_that_it_took(own_folders: Path) -> None:
    source = (
        "import os, signal, time\nif os.environ['RANK'] == '1':\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    )
    run = launch_cell("local", source, 2, timeout=2, stop_grace=1)
    found = card(run, ended(run))
    assert found is not None
    (cause,) = found.causes
    assert cause.startswith("Rank 1 did not end after SIGTERM. The supervisor killed it ")
    assert cause.endswith(" s after the time limit.")
    assert 1 <= float(cause.split()[-6]) < 10


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
