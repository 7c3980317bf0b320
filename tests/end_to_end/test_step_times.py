"""Real ranks of which one is slow, without a line of code for it: the run names the rank and the part."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import queries
from jupyter_dist.folder import RunFolder
from jupyter_dist.record import reader
from jupyter_dist.record.cursor import Tail
from jupyter_dist.record.steps.step_times import RunSteps
from jupyter_dist.record.steps.straggler import Cause, Finding, Verdict
from jupyter_dist.showing.run import Run
from jupyter_dist.showing.view import View
from tests.rigs.launching import ended, launch_cell

PRELOADED = ["torch"]
pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.usefixtures("warm"),
    pytest.mark.xdist_group("step times"),
]

MODEL = """
import time
import torch
import torch.distributed as d
import jupyter_dist as dist
from torch import nn
from jupyter_dist.worker import steps

torch.set_num_threads(1)
dist.init()

class Digits(torch.utils.data.Dataset):
    slow_s = 0.0
    def __len__(self):
        return 120
    def __getitem__(self, i):
        if dist.rank() == 1 and Digits.slow_s:
            time.sleep(Digits.slow_s)
        return torch.ones(8), torch.ones(1)

model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
model = nn.parallel.DistributedDataParallel(module=model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

def train(slow_s=0.0):
    for x, y in torch.utils.data.DataLoader(Digits(), batch_size=4):
        optimizer.zero_grad()
        if dist.rank() == 1 and slow_s:
            time.sleep(slow_s)
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
"""
SLOW_DATA = MODEL + "Digits.slow_s = 0.015\ntrain()\n"
PHASES = """
train()
steps.write()
dist.log(phase=1)
train(slow_s=0.06)
steps.write()
dist.log(phase=2)
for _ in range(20):
    if dist.rank() == 1:
        time.sleep(0.06)
    d.all_reduce(torch.ones(4))
"""


def notes(folder: RunFolder) -> list[str]:
    """Return what the view says of slow ranks. The terminal must say it once."""
    view = View(folder, reader.job(folder), keep=1000)
    tail = Tail(folder)
    for batch in (tail.poll(), *tail.drain()):
        view.feed(batch, 0.0)
    lines = [entry.text for entry in view.fold.shown() if entry.text.startswith("note: Rank")]
    found = [note for note in queries.run(folder.id)["notes"] if note.startswith("Rank")]
    assert [line.removeprefix("note: ").partition(":")[0] for line in lines] == [
        note.partition(":")[0] for note in found
    ]
    return found


def rows(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the rows of the run's table."""
    found: list[dict[str, Any]] = Run(folder).profile.to_dict("records")  # type: ignore[assignment]
    return found


def test_a_slow_data_loader_is_named(own_folders: Path) -> None:
    # Cold: the hooks then wait for the import of torch, as they do on every other host.
    folder = launch_cell("local", SLOW_DATA)
    ended(folder)
    (note,) = notes(folder)
    assert note.startswith("Rank 1 is slow: it needs ")
    assert note.endswith(" of each step. Its data loader takes the time.")
    fast, slow = rows(folder)
    assert (fast["steps"], slow["steps"]) == (29, 29), "all but the first"
    assert slow["data_s"] > 0.05
    # Both wait for the other's processes on a busy machine. The fast one also waits for the slow data.
    assert fast["collectives_s"] - slow["collectives_s"] > 0.04
    for row in (fast, slow):
        assert row["data_s"] + row["compute_s"] + row["collectives_s"] == pytest.approx(
            row["step_s"], rel=0.05
        )
        assert row["samples_per_s"] == pytest.approx(4 / row["step_s"])
    assert queries.profile(folder.id)["straggler"] == 1


def test_ranks_that_are_alike_slow_computation_and_collectives_alone(own_folders: Path) -> None:
    folder = launch_cell("local", MODEL + PHASES, cold=False)
    ended(folder)
    phases = [RunSteps(), RunSteps(), RunSteps()]
    for rank in range(2):
        phase = 0
        for event in reader.events(folder):
            if event.rank == rank and event.kind == "metric":
                phase = event.data["values"]["phase"]
            elif event.rank == rank and event.kind == "steps":
                phases[phase].take(rank, event.data)
    alike, computing, collectives = (phase.verdict(2) for phase in phases)
    assert alike == Verdict(Finding.BALANCED)
    assert (computing.rank, computing.cause) == (1, Cause.COMPUTE)
    assert collectives == Verdict(Finding.INCOMPLETE, ("steps",))


def test_the_steps_of_dist_progress_and_dist_log(own_folders: Path) -> None:
    cell = (
        "import jupyter_dist as dist\n"
        "for epoch in dist.progress(range(2)):\n"
        "    for batch in dist.progress(range(10)):\n"
        "        dist.log(loss=1.0)\n"
        "        dist.log(loss=0.5)\n"
    )
    only_logs = "import jupyter_dist as dist\nfor _ in range(5):\n    dist.log(loss=1.0)\n"
    logs = launch_cell("local", only_logs, np=1)
    folder = launch_cell("local", cell, np=1)
    ended(logs)
    ended(folder)
    (row,) = rows(folder)
    assert (row["by"], row["steps"]) == ("progress", 19), "those of the inner loop, without the first"
    assert math.isnan(row["data_s"])
    (row,) = rows(logs)
    assert (row["by"], row["steps"]) == ("log", 4)
