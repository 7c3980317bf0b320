"""Bars of tqdm and Rich on a rank (Keras': test_autolog.py), and what views make of them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import queries
from jupyter_dist.conformance.deadlines import run_process
from jupyter_dist.text.progress_bar import Bar
from tests.rigs.run_maker import BEGAN, RunMaker
from tests.showing.test_live import shown

SETUP = """
import os, sys
sys.modules.update(dict.fromkeys(os.environ["LACKS"].split()))
from jupyter_dist.worker import autolog
from jupyter_dist.worker.output import events
events.open_writer("events.jsonl")
autolog.install()
"""
TQDM = """
import io
import numpy as np
from tqdm import tqdm
from tqdm.auto import tqdm as auto
from tqdm.notebook import tqdm as notebook

for epoch in (outer := tqdm(range(2), desc="epochs")):
    for batch in auto(range(np.int64(3)), desc=f"epoch {epoch}", leave=False):
        pass
    outer.set_postfix(loss=0.5)
    tqdm.write("said")
bar = notebook(total=np.int64(10), desc="widgets", unit="B", display=True, disable=None)
bar.update(np.int64(3))
bar.reset()
bar.update(4)
bar.close()
for batch in notebook(range(5), desc="left"):
    if batch == 2:
        break
file = io.StringIO()
for batch in tqdm(range(3), file=file):
    pass
assert "3/3" in file.getvalue()
pid = os.fork()
if not pid:
    list(tqdm(range(3), desc="forked", leave=False))
    os._exit(0)
os.waitpid(pid, 0)
"""
RICH = """
import time
from rich.console import Console
from rich.progress import Progress
console = Console(force_terminal=True, width=60)
with Progress(console=console, refresh_per_second=20) as progress:
    tasks = [progress.add_task(name, total=10) for name in ("[red]files[/red]", "bytes")]
    for step in range(10):
        for task in tasks:
            progress.advance(task)
        if step == 5:
            console.print("half of it")
        time.sleep(0.05)
assert console.is_interactive
"""


def drawn(folder: Path, code: str, lacks: str = "") -> tuple[str, list[dict[str, Any]]]:
    """What the process leaves in its log, and what it says of its bars."""
    env = {**os.environ, "LACKS": lacks, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", SETUP + code]
    done = run_process(command, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert {event["kind"] for event in said} == {"progress"}
    return done.stdout + done.stderr, said


@pytest.mark.needs("tqdm", "numpy")
@pytest.mark.parametrize("lacks", ["", "IPython ipywidgets"])
def test_bars_of_tqdm_are_reported_and_leave_one_line_each(tmp_path: Path, lacks: str) -> None:
    log, said = drawn(tmp_path, TQDM, lacks)
    assert "\r" not in log
    lines = [line.partition("|")[0] for line in log.splitlines()]
    assert lines == ["said", "said", "epochs: 100%", "widgets:  40%", "left:  40%"]
    first = [(event["id"], event["desc"], event["total"]) for event in said if event["n"] == 0]
    assert first[:3] == [(0, "epochs", 2), (1, "epoch 0", 3), (0, "epochs", 2)]
    ends = {event["desc"]: event for event in said if event.get("closed")}
    assert [(e["desc"], e["n"]) for e in ends.values()] == [
        *(("epoch 0", 3), ("epoch 1", 3), ("epochs", 2), ("widgets", 4), ("left", 2), ("forked", 3))
    ]
    assert ends["epochs"]["note"] == "loss=0.5"
    assert ends["widgets"]["unit"] == "B"
    assert ends["forked"]["id"] not in {event["id"] for event in said if event["desc"] != "forked"}


@pytest.mark.needs("rich")
def test_bars_of_rich_are_reported_and_their_last_picture_is_drawn(tmp_path: Path) -> None:
    log, said = drawn(tmp_path, RICH)
    for text in ("files", "bytes", "half of it"):
        assert log.count(text) == 1, log
    assert "\x1b[1A" not in log
    ids = {event["desc"]: event["id"] for event in said}
    assert ids == {"files": 0, "bytes": 1}
    assert len({event["n"] for event in said if event["id"] == 1}) > 4, "it moves while it is under way"
    assert [event["n"] for event in said if event.get("closed")] == [10, 10]


def test_bars_within_each_other_are_told_with_what_they_say(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    for rank in range(2):
        for n in range(3):
            made.event(rank, "progress", BEGAN + 10 * n, id=0, n=n, total=9, desc="epochs", note="loss=0.5")
        for n in range(3):
            data = {"id": 1, "n": 1000 * n, "total": 5000, "desc": "batch", "unit": "B"}
            made.event(rank, "progress", BEGAN + 20 + n / 10, **data)
    made.event(1, "progress", BEGAN + 21, id=1, n=2000, total=5000, desc="batch", closed=True)
    assert shown(made)[:2] == [
        "epochs:  22% ▕████▍               ▏ 2/9  10 s each  1:10 left  loss=0.5",
        "batch:  40% ▕████████            ▏ 2 kB/5 kB  10 kB/s  0:00 left",
    ]
    run = queries.run(made.folder.id)
    outer = {"n": 2, "total": 9, "desc": "epochs", "rate": 0.1, "note": "loss=0.5"}
    inner = {"n": 2000, "total": 5000, "desc": "batch", "rate": 10_000.0, "unit": "B"}
    assert run["progress"] == {"rank": 0, **outer}
    assert run["progress_by_rank"] == [
        {"rank": 0, "id": BEGAN * 1000, "inner": [{**inner, "rate": pytest.approx(10_000)}], **outer},
        {"rank": 1, "id": BEGAN * 1000, **outer},
    ]


def test_a_bar_that_says_something_else_of_the_same_count_keeps_its_pace() -> None:
    bar = Bar()
    for n in range(3):
        for say in range(30):
            bar.take({"time": 10 * n + say / 10, "n": n, "total": 9, "desc": f"loss {say}"}, 80)
    assert bar.rate() == pytest.approx(0.1)
    bar.take({"time": 30, "n": 2, "total": 9, "closed": True}, 80)
    assert bar.done
    bar.take({"time": 100, "n": 5, "total": 9, "desc": "another loop"}, 80)
    assert (bar.rate(), bar.done) == (None, False)


def test_the_run_shows_the_rank_that_is_behind_and_never_goes_back(own_folders: Path) -> None:
    made = RunMaker(own_folders, 3)

    def bar(rank: int, desc: str, n: int, total: int, *, began: float, **more: Any) -> None:
        made.event(rank, "progress", id=0, desc=desc, n=n, total=total, began=BEGAN + began, **more)

    def behind() -> tuple[Any, ...]:
        run, (listed,) = queries.run(made.folder.id), queries.runs()["runs"]
        assert run["progress"] == listed["progress"]
        assert run["progress"] is not None
        # The lines under the cell are of the same rank.
        found: dict[str, Any] = {**run["progress"]}
        line = shown(made)[0]
        assert f" {found['n']:g}/{found['total']:g}" in line, line
        return found["rank"], found["desc"], found["n"]

    bar(0, "epochs", 1, 3, began=0)
    bar(2, "epochs", 1, 3, began=0.5)
    assert behind() == (0, "epochs", 1)
    bar(1, "epochs", 2, 3, began=0.1)
    bar(2, "epochs", 3, 3, began=0.5, closed=True)
    bar(2, "eval", 0, 20, began=9)
    assert behind() == (0, "epochs", 1)
    bar(0, "epochs", 3, 3, began=0, closed=True)
    assert behind() == (1, "epochs", 2)
    bar(1, "epochs", 3, 3, began=0.1, closed=True)
    bar(2, "eval", 5, 20, began=9)
    assert behind() == (2, "eval", 5)
    # One loop after another with the same text: each rank's second one is compared with the second ones.
    for rank in range(3):
        bar(rank, "eval", 20, 20, began=9, closed=True)
        bar(rank, "eval", 2 + rank, 20, began=20 + rank, nth=1)
    assert behind() == (0, "eval", 2)
    bar(0, "eval", 20, 20, began=20, nth=1, closed=True)
    bar(0, "eval", 1, 20, began=30, nth=2)
    assert behind() == (1, "eval", 3)


def test_a_bar_within_another_goes_with_it(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.event(0, "progress", BEGAN, id=0, n=0, total=2, desc="fold 1")
    made.event(0, "progress", BEGAN + 1, id=1, n=3, total=9, desc="epoch")
    made.event(0, "progress", BEGAN + 2, id=0, n=1, total=2, desc="fold 1", closed=True)
    made.event(0, "progress", BEGAN + 3, id=0, n=0, total=2, desc="fold 2", began=BEGAN + 3)
    (row,) = queries.run(made.folder.id)["progress_by_rank"]
    assert row["desc"] == "fold 2"
    assert "inner" not in row
