"""Real ranks that part at a collective: the card names the ranks, the collective and what to do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Status
from jupyter_dist.record import reader
from jupyter_dist.record.failures.card import Card, card
from jupyter_dist.worker.output.events import COLLECTIVES
from tests.rigs.launching import ended, launch_cell, logs, until

pytestmark = pytest.mark.needs("torch")

LOOP = """
import ctypes, os, time
import torch
import torch.distributed as d
import jupyter_dist as dist

torch.set_num_threads(1)
dist.init()
x = torch.ones(4)
for i in range(5):
    if dist.rank() == 1 and i == 3:
        print("here", flush=True)
        {plant}
    d.all_reduce(x)
"""
DDP = """
import torch
import jupyter_dist as dist
from torch import nn

torch.set_num_threads(1)
dist.init()
model = nn.parallel.DistributedDataParallel(nn.Linear(5, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in range(4 if dist.rank() == 2 else 6):
    optimizer.zero_grad()
    model(torch.ones(3, 5)).sum().backward()
    optimizer.step()
"""
HOROVOD = """
import time
import torch
import horovod.torch as hvd

torch.set_num_threads(1)
hvd.init()
for i in range(5):
    if hvd.rank() == 1 and i == 3:
        {plant}
    hvd.allreduce(torch.ones(4), name=f"step.{{i}}")
"""


def shown(folder: RunFolder) -> Card:
    found = card(folder)
    assert found is not None
    assert len(found.lines()) <= 12
    return found


@pytest.mark.parametrize("plant", ["break", "raise SystemExit(0)"])
def test_a_rank_that_ends_before_the_others(plant: str, own_folders: Path) -> None:
    folder = launch_cell("local", LOOP.format(plant=plant), np=3)
    status = ended(folder)
    told = "rank 1 ended normally after #3: ranks 0,2 failed in all_reduce #4 of float32[4]"
    assert status.reason == told
    found = shown(folder)
    assert found.headline == told
    assert "dist.shard(data, even=True)" in found.hints[0]
    assert not [line for line in found.others if "closed by peer" in line]


def test_uneven_batches_of_ddp(own_folders: Path) -> None:
    folder = launch_cell("local", DDP, np=3)
    ended(folder)
    found = shown(folder)
    assert found.title.startswith("rank 2 ended normally after #")
    assert found.what.startswith("ranks 0-1 failed in all_reduce #")
    assert "float32[12]" in found.what


def test_types_that_differ_are_the_cause_and_not_the_innocent_ranks_sigabrt(own_folders: Path) -> None:
    folder = launch_cell("local", LOOP.format(plant="x = x.double()"), np=3)
    status = ended(folder)
    found = shown(folder)
    assert found.title == "the ranks differ at collective #4"
    assert "rank 1 called all_reduce of float64[4]" in found.what
    assert found.headline == status.reason
    assert "the same shape and type" in found.hints[0]


def test_a_rank_that_raises_by_itself_is_the_cause(own_folders: Path) -> None:
    folder = launch_cell("local", LOOP.format(plant="raise ValueError('mine')"), np=3)
    assert ended(folder).reason == "rank 1 failed: ValueError: mine"
    assert shown(folder).what == "ValueError: mine"


@pytest.mark.parametrize(
    ("plant", "title", "what"),
    [
        (
            "time.sleep(600)",
            "rank 1 did not come to all_reduce #4 of float32[4]",
            "ranks 0,2 wait in it, and rank 1 has finished #3",
        ),
        (
            "d.all_reduce(torch.ones(2, 3)); continue",
            "the ranks differ at collective #4",
            "ranks 0,2 called all_reduce of float32[4], rank 1 called all_reduce of float32[2, 3]",
        ),
        (
            "d.broadcast(x, 0); continue",
            "the ranks differ at collective #4",
            "ranks 0,2 called all_reduce of float32[4], rank 1 called broadcast of float32[4]",
        ),
    ],
)
def test_ranks_that_hang_and_are_stopped(plant: str, title: str, what: str, own_folders: Path) -> None:
    folder = launch_cell("local", LOOP.format(plant=plant), np=3)
    until(folder, lambda _: "here" in logs(folder, 1), "the planted line")
    _ask_until_they_wait(folder)
    folder.request("stop")
    ended(folder)
    found = shown(folder)
    assert (found.title, found.what) == (title, what)
    if "sleep" in plant:
        assert "rank 1 was at In[1], line 13: time.sleep(600)" in found.places
    assert "ranks 0,2 were at In[1], line 14: d.all_reduce(x)" in found.places


def _ask_until_they_wait(folder: RunFolder) -> None:
    """Ask for the stacks until a rank has told that it waits for long. All ranks have answered then."""
    answers: Counter[int] = Counter()
    while not any((waits_s or 0) > 3 for record in _records(folder) for *_, waits_s in record.data["calls"]):
        before = answers
        folder.request("stacks")

        def all_have(_: Status, before: Counter[int] = before) -> bool:
            answers = Counter(record.rank for record in _records(folder))
            return all(answers[rank] > before[rank] for rank in range(3))

        until(folder, all_have, "the answers of all ranks")
        answers = Counter(record.rank for record in _records(folder))


def _records(folder: RunFolder) -> list[reader.Event]:
    return [event for event in reader.events(folder) if event.kind == COLLECTIVES]


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_the_users_own_buffer_size_wins(
    name: str, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "2")
    folder = launch_cell("local", LOOP.format(plant="pass"), np=2)
    ended(folder)
    records = [record.data for record in _records(folder)]
    assert [[number for _, number, *_ in record["calls"]] for record in records] == [[4, 5]] * 2
    assert all(record["final"] for record in records)


@pytest.mark.needs("horovod")
@pytest.mark.parametrize(
    ("plant", "headline"),
    [
        ("time.sleep(600)", "rank 1 did not come to allreduce.step.3: ranks 0,2 wait in it"),
        (
            "continue",
            "the ranks wait for different tensors: ranks 0,2 did not submit allreduce.step.4, "
            "rank 1 did not submit allreduce.step.3",
        ),
    ],
)
def test_ranks_of_horovod_that_hang_and_are_stopped(
    plant: str, headline: str, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "1")
    folder = launch_cell("horovod", HOROVOD.format(plant=plant), np=3)
    until(folder, lambda _: any("Missing ranks" in line for line in logs(folder, 0)), "Horovod's warning")
    folder.request("stacks")
    until(folder, lambda _: all(folder.rank(0, rank).stacks.stat().st_size for rank in range(3)), "stacks")
    folder.request("stop")
    ended(folder)
    assert shown(folder).headline == headline


@pytest.mark.needs("horovod")
def test_a_rank_of_horovod_that_ends_before_the_others(own_folders: Path) -> None:
    folder = launch_cell("horovod", HOROVOD.format(plant="break"), np=3)
    status = ended(folder)
    found = shown(folder)
    assert found.title == "rank 1 ended normally before the others"
    assert "Horovod has been shut down" in found.what
    assert status.reason is not None
    assert status.reason.startswith(found.title)
    assert "hvd.join()" in found.hints[0]
