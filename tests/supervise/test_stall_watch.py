"""A hang whose cause the ranks know is a stall before the limit; a silence without a cause is not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Status
from jupyter_dist.record import reader
from jupyter_dist.record.failures import parting, stacks
from jupyter_dist.supervise.stall_watch import StallWatch
from tests.rigs.launching import ended, launch_cell, until

PRELOADED = ["torch"]
HUNG = """
import time
import torch
import torch.distributed as d
import jupyter_dist as dist

dist.init()
if dist.rank() == 1:
    time.sleep(600)
d.all_reduce(torch.ones(4))
"""
LIMIT_S = 300.0
FIRST_LOOK_S = 60.0
AGAIN_S = 6.0


def watch(folder: RunFolder, asked: list[float]) -> StallWatch:
    def ask() -> None:
        asked.append(time.time())
        folder.request("stacks")

    return StallWatch(folder, LIMIT_S, ask, first_look_s=FIRST_LOOK_S)


@pytest.mark.needs("torch")
@pytest.mark.usefixtures("warm")
@pytest.mark.xdist_group("stalls of torch")
def test_ranks_that_have_parted(own_folders: Path) -> None:
    folder = launch_cell("local", HUNG, 2, {}, cold=False, stop_grace=1.0)
    watched, began = watch(folder, []), 0.0

    def stalled(_: object) -> bool:
        # The ranks may not wait for each other yet when they are asked. Then the silence begins anew.
        nonlocal watched, began
        now = time.monotonic()
        if now - began > AGAIN_S:
            watched, began = watch(folder, []), now
        return watched.stalled(began - FIRST_LOOK_S, now, reader.status(folder))

    until(folder, stalled, "the stall")
    folder.request("stop")
    ended(folder)


@pytest.mark.needs("torch")
@pytest.mark.usefixtures("warm")
@pytest.mark.xdist_group("stalls of torch")
def test_the_answers_of_ranks_do_not_end_a_stall(own_folders: Path) -> None:
    folder = launch_cell("local", HUNG, 2, {}, cold=False, stop_grace=1.0, stall_timeout=1.0)

    def parted(status: Status) -> bool:
        if time.time() - stacks.kept(folder)[1] > AGAIN_S / 2:
            folder.request("stacks")
        return bool(parting.of_running(folder, status))

    # Until the ranks wait for each other, a stall can end: they may not have begun at the first.
    until(folder, parted, "how they parted")
    first = until(folder, lambda status: status.stall, "the stall").stall
    noticed = time.time()

    def answered(_: Status) -> bool:
        # A request is dropped while another one is under way.
        folder.request("stacks")
        return stacks.kept(folder)[1] > noticed

    until(folder, answered, "their answers")
    answers = time.time()
    later = until(folder, lambda status: status.heartbeat > answers + 1, "the next turns")
    assert later.stall == first
    folder.request("stop")
    ended(folder)


def test_a_silence_without_a_cause(own_folders: Path) -> None:
    folder = launch_cell("local", "import time; print('up'); time.sleep(600)", 2, {}, stop_grace=1.0)
    until(folder, lambda status: all(rank.pid for rank in status.ranks), "the ranks")
    asked: list[float] = []
    watched = watch(folder, asked)
    status = reader.status(folder)
    found = [watched.stalled(0.0, float(now), status) for now in range(300)]
    assert found == [False] * 300
    assert len(asked) == 3  # after 60, 120 and 240 s
    assert watched.stalled(0.0, 300.0, status)
    # A line begins the silence anew.
    assert not watched.stalled(290.0, 301.0, status)
    folder.request("stop")
    ended(folder)
