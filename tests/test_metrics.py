"""Metrics of a run: logged values, values found in the log, NaN and infinities."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job
from jupyter_dist.record import metrics
from jupyter_dist.worker.events import EventWriter


def make(root: Path, patterns: dict[str, str]) -> RunFolder:
    folder = folders.create(root, folders.new_id(), 2)
    job = Job(folder.id, "local", 2, time.time(), "/", "python", "1", metrics=patterns)
    folders.write_json(folder.job, job.to_json())
    return folder


def test_values_survive_as_they_are(own_folders: Path) -> None:
    folder = make(own_folders, {})
    writer = EventWriter(str(folder.rank(0, 1).events))
    values = [0.1, 1e-300, -0.0, 10**20, math.nan, math.inf, -math.inf, 3]
    for step, value in enumerate(values):
        writer.metric({'an "odd" nämé\n': value}, step)
    writer.close()
    points = metrics.points(folder)
    assert [(p.rank, p.step, p.name) for p in points] == [(1, s, 'an "odd" nämé\n') for s in range(8)]
    assert [repr(p.value) for p in points] == [repr(float(value)) for value in values]


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (r"loss: ([0-9.]+)", "epoch 1 loss: 0.25 acc: 0.9", [(0, 0.25)]),
        (r"loss=(\S+)", "loss=nan", [(0, math.nan)]),
        (r"loss=(\S+)", "loss=none", []),
        (r"step (?P<step>\d+) loss (?P<value>\S+)", "step 7 loss 0.5", [(7, 0.5)]),
        (r"x(\d)", "x1 x2", [(0, 1.0), (1, 2.0)]),
    ],
)
def test_values_are_found_in_the_log(
    own_folders: Path, pattern: str, line: str, expected: list[tuple[int, float]]
) -> None:
    folder = make(own_folders, {"found": pattern})
    folder.rank(0, 0).output.write_text(f"before\n{line}\nafter")
    found = [(p.step, repr(p.value)) for p in metrics.points(folder)]
    assert found == [(step, repr(value)) for step, value in expected]
