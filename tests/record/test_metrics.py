"""Metrics of a run: logged values, values found in the log, NaN and infinities."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job
from jupyter_dist.queries.metrics import event_lines
from jupyter_dist.record.cursor import Tail
from jupyter_dist.record.metrics import points as metrics
from jupyter_dist.showing import summary_curves
from jupyter_dist.worker.output import events
from jupyter_dist.worker.output.events import EventWriter
from tests.rigs.run_maker import RunMaker


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


def test_many_lines_at_once_are_what_they_are_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = EventWriter(str(path))
    for step in range(50):
        writer.metric({"loss": 1 / (step + 3) * 10.0 ** (step - 25), "a,b": -step}, step - 5)
    lines = path.read_bytes().splitlines()
    found = event_lines.table(lines)
    assert found is not None
    names, rows = found
    parsed = [json.loads(line) for line in lines]
    assert names == ["loss", "a,b"]
    assert rows.tolist() == [[p["time"], p["step"], *p["values"].values()] for p in parsed]
    # Whatever is of another make has to be read one by one.
    writer.metric({"loss": 2.0, "a,b": math.nan}, 50)
    writer.metric({"loss": 2.0}, 51)
    writer.metric({"loss": 2.0, "a,b": 3, "c": 4}, 52)
    writer.metric({"a,b": 3, "loss": 4}, 53)
    writer.metric({"loss": 2.0, "a,b": 1}, None)
    writer.progress(0, 3, 4, '"kind":"metric"')
    for other in path.read_bytes().splitlines()[50:]:
        assert event_lines.table([*lines, other]) is None
    assert event_lines.table([*lines[:30], lines[30][:-4], *lines[31:]]) is None
    assert event_lines.table([*lines, lines[0]]) is None
    assert event_lines.table(lines[:3]) is None


def test_the_time_of_a_metric_is_that_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the clock of the machine that started the run. An earlier release wrote it with a decimal point."""
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("JUPYTER_DIST_CLOCK_OFFSET_S", "-3600.25")
    writer = events.open_writer(str(path))
    stamps = []
    try:
        for step in range(40):
            before = time.time_ns()
            writer.metric({"loss": 0.5}, step)
            stamps.append((before, time.time_ns()))
        writer.note("the end")
    finally:
        events.close()
        monkeypatch.delenv("JUPYTER_DIST_CLOCK_OFFSET_S")
        events.open_writer(str(tmp_path / "other"))  # without an offset, for the tests that follow
        events.close()
    *lines, last = path.read_bytes().splitlines()
    times = [json.loads(line)["time"] for line in lines]
    for found, (before, after) in zip(times, stamps, strict=True):
        assert before // 1000 <= round((found + 3600.25) * 1e6) <= after // 1000
    assert times[-1] <= json.loads(last)["time"] < times[-1] + 60, "all kinds of events have one clock"
    earlier = [re.sub(rb"(\d{6})e-6", rb".\1", line) for line in lines]
    assert earlier[0] != lines[0]
    for form in (lines, earlier):
        for found_rows in (event_lines.table(form), event_lines.block(b"\n".join(form) + b"\n")):
            assert found_rows is not None
            assert found_rows[1][:, 0].tolist() == times


def test_a_block_of_one_make_is_what_its_lines_are(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = EventWriter(str(path))
    for step in range(50):
        writer.metric({"loss": 10.0 ** (step - 25), "the": -step}, step - 5)
    data = path.read_bytes()
    found, lines = event_lines.block(data), event_lines.table(data.splitlines())
    assert found is not None
    assert lines is not None
    assert (found[0], found[1].tolist()) == (lines[0], lines[1].tolist())
    for other in (
        {"loss": math.nan, "the": 1},
        {"the": 1, "loss": 2.0},
        {"loss": 2.0, "thy": 1},
        {"loss": 2.0},
    ):
        path.write_bytes(data)
        EventWriter(str(path)).metric(other, 60)
        assert event_lines.block(path.read_bytes()) is None, other
    assert event_lines.block(data[:-1]) is None
    assert event_lines.block(data.replace(b"loss", b"loss1")) is None
    assert event_lines.block(data + data.split(b"\n")[0] + b"\n") is None
    assert event_lines.block(b"\n".join(data.split(b"\n")[:3]) + b"\n") is None


def test_a_tail_passes_metrics_over(tmp_path: Path) -> None:
    run = RunMaker(tmp_path, 1)
    writer = EventWriter(str(run.rank(0).events))
    for step in range(1000):
        writer.metric({"loss": 1.0}, step)
        if step % 100 == 0:
            writer.note(f"at {step}")
    tail = Tail(run.folder, metrics=False)
    batch = tail.poll()
    assert [event.data["text"] for event in batch.events] == [f"at {n}" for n in range(0, 1000, 100)]
    assert batch.metrics > 1000 * 60
    assert tail.poll().metrics == 0
    names = set(summary_curves.curves(run.folder))
    assert names == {"loss"}
