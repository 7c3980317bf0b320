"""A trace of running ranks: one file, in which the same collective is at the same time on all of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import queries
from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.errors import DistError, InputError
from jupyter_dist.folder import RunFolder
from jupyter_dist.showing.run import Run
from tests.rigs.launching import launch_cell, until

PRELOADED = ["torch"]

TRAIN = """
import itertools, time
import torch
import torch.distributed as d
import jupyter_dist as dist

torch.set_num_threads(1)
dist.init()
weight = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([weight], lr=0.01)
for step in itertools.count():
    comes = dist.checkpoint_dir() / str(step)
    if dist.rank():
        time.sleep(0.02)
        comes.touch()
    else:  # it comes to each collective after rank 1
        while not comes.exists():
            time.sleep(0.001)
        time.sleep(0.03)
        comes.unlink()
    d.all_reduce(torch.ones(1000))
    weight.sum().backward()
    optimizer.step()
"""
WITHOUT_TORCH = """
import time
import jupyter_dist as dist

while True:
    time.sleep(0.01)
    dist.log(loss=1.0)
"""


def has_steps(folder: RunFolder, wait_for: Callable[..., Any]) -> Run:
    """Return the run once all ranks train."""
    until(folder, lambda status: status.state == "running", "running ranks")
    run = Run(folder)
    wait_for(lambda: len(run.profile) == 2, "steps of both ranks")
    return run


def collectives(events: list[dict[str, Any]], rank: int) -> list[tuple[float, float]]:
    """Return begin and end of the all_reduces that a rank's communicator ran, in order."""
    own = [one for one in events if one["pid"] // 1000 == rank and one["name"] == "gloo:all_reduce"]
    return sorted((one["ts"], one["ts"] + one["dur"]) for one in own)


@pytest.mark.usefixtures("warm")
@pytest.mark.needs("torch")
def test_all_ranks_are_in_one_file_and_by_one_clock(own_folders: Path, wait_for: Callable[..., Any]) -> None:
    run = has_steps(launch_cell("local", TRAIN), wait_for)
    said = str(dispatch(f"trace --steps 8 {run.id}", Context(), str))
    found = re.fullmatch(
        r"The trace of ranks 0-1 is in (\S+\.json)\. Open it at https://ui\.perfetto\.dev\.", said
    )
    assert found is not None, said
    events = json.loads(Path(found[1]).read_text())["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert [names[0][:10], names[1000][:10]] == ["rank 0 on ", "rank 1 on "]
    for rank in range(2):
        steps = [one for one in events if one.get("cat") == "step" and one["pid"] == 1000 * rank]
        assert [one["name"] for one in steps] == [f"step {number}" for number in range(8)]
        assert any(one["name"] == "aten::sum" and one["pid"] == 1000 * rank for one in events)
    pairs = [collectives(events, rank) for rank in range(2)]
    assert min(map(len, pairs)) >= 7
    # Rank 1 waits in each collective until rank 0 has come, so their times overlap.
    late, early = pairs
    alone = [one for one in early if not any(begin <= one[1] and one[0] <= end for begin, end in late)]
    assert len(alone) <= 1, pairs
    met = [(mine[0], begin) for mine in early for begin, end in late if begin <= mine[1] and mine[0] <= end]
    # A busy machine can hold up rank 1 right before a collective.
    assert sum(came < other for came, other in met) > len(met) / 2, pairs
    # The view lists the file, and the log does not show the profiler's own lines.
    (listed,) = queries.run(run.id)["files"]
    assert listed["name"] == Path(found[1]).name
    assert run.log() == ""

    began = time.time()
    second = run.trace(for_s=0.3)
    assert second != Path(found[1])
    steps = [one for one in json.loads(second.read_text())["traceEvents"] if one.get("cat") == "step"]
    assert sum(one["dur"] for one in steps if one["pid"] == 0) >= 0.3e6
    assert time.time() - began >= 0.3
    run.stop()
    wait_for_end(run)
    assert run.state == "stopped"
    with pytest.raises(DistError, match=r"has ended \(stopped\), so it cannot be traced"):
        run.trace()


def test_ranks_without_torch_go_on_and_one_error_says_why(
    own_folders: Path, wait_for: Callable[..., Any]
) -> None:
    run = has_steps(launch_cell("local", WITHOUT_TORCH), wait_for)
    with pytest.raises(
        InputError, match=r"^A trace has either a number of steps or a length\. Remove one of them"
    ):
        dispatch(f"trace --steps 8 --for 2s {run.id}", Context(), str)
    with pytest.raises(DistError) as error:
        run.trace()
    assert str(error.value) == (
        f"Run {run.id} was not traced. Rank 0-1: it has not imported torch. A trace needs torch, and begins "
        "at the end of a training step. The run continues."
    )
    before = len(run.metrics)
    wait_for(lambda: len(run.metrics) > before + 20, "more steps")
    assert (run.state, run.log()) == ("running", "")
    assert not run.folder.files.exists()
    run.stop()
    wait_for_end(run)
