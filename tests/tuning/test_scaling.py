"""Scaling: one cell at several sizes. Each is a run of its own, and ends after some steps by itself."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist import queries
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.errors import InputError
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.showing.run import Run
from tests.tuning.test_tuning import story

pytestmark = pytest.mark.usefixtures("warm")


def train(np: str) -> None:
    """Has no end, and pays for each rank beyond the first. `np` is the user's own name.

    Its clock is its own: a step takes 15 or 25 ms, and a collective 2.5 ms for each other rank.
    """
    import itertools

    import torch
    from torch import distributed

    import jupyter_dist as dist
    from jupyter_dist.worker import steps

    assert (np, dist.parameters()) == ("numpy", {})
    torch.set_num_threads(1)
    dist.init()
    clock = [0.0]
    steps._now = lambda: clock[0]
    reduce = distributed.ProcessGroup.allreduce

    def paid(*args: Any) -> Any:
        clock[0] += 0.0025 * (dist.world_size() - 1)
        return reduce(*args)

    distributed.ProcessGroup.allreduce = paid  # beneath the function that the rank times
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.01)
    many = torch.ones(1 << 20)
    for step_s in itertools.cycle((0.015, 0.025)):
        clock[0] += step_s
        for _ in range(2):
            distributed.all_reduce(many)
        weight.grad = torch.ones(1)
        try:
            optimizer.step()
        except Exception:
            raise AssertionError("the end is no error") from None


@pytest.mark.needs("torch")
def test_each_size_is_a_run_and_the_report_names_what_limits(own_folders: Path) -> None:
    run = jupyter_dist.run(train, "numpy", scaling=[2, 1], steps=12, detach=True)
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    table = Run(run.folder).scaling  # as a later kernel reads it
    assert table.index.tolist() == [1, 2, 4, 8]
    assert table["projected"].tolist() == [False, False, True, True]
    first, second = table.loc[1], table.loc[2]
    assert (first["unit"], first["speedup"], first["efficiency"]) == ("steps/s", 1, 1)
    assert second["limit"] == "communication", table.to_string()
    assert second["efficiency"] == pytest.approx(0.8)
    assert second["low"] <= second["efficiency"] <= second["high"]
    assert (first["collectives_s"], second["collectives_s"]) == (0, pytest.approx(0.005))
    for ranks, place in ((1, first["run"]), (2, second["run"])):
        one = jupyter_dist.attach(place)
        assert (one.state, one.job.world_size, list(one.results)) == ("succeeded", ranks, [None] * ranks)
        assert one.profile["steps"].tolist() == [12] * ranks
    assert run.trials["ranks"].tolist() == [1, 2]

    summary = run._summary()
    assert summary is not None
    text, page = summary.text(), html.unescape(re.sub("<[^>]*>", "", summary.html()))
    assert "scaling over 1, 2 ranks on local" in text
    assert re.search(r"^2 +[\d.]+ steps/s .* communication \(\d+ % of the loss\)$", text, re.MULTILINE), text
    for told in ("8 (projection)", "Amdahl: ", "Gustafson: "):
        assert told in text
        assert told in page
    assert summary.html().count("<svg") == 1
    tuning = queries.run(run.id)["tuning"]
    assert [row["ranks"] for row in tuning["scaling"]["rows"]] == [1, 2, 4, 8]
    assert [one["id"] for one in queries.runs()["runs"]] == [run.id], "the sizes belong to the group"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "--scaling 1,two",
            r"^--scaling needs 2 to 32 different numbers of ranks such as 1,2,4, got '1,two'$",
        ),
        ("--scaling 1,2.5", r"^--scaling needs 2 to 32 different numbers"),
        ("--scaling 0,2", r"^--scaling needs 2 to 32 different numbers"),
        ("--scaling 2,2", r"^--scaling needs 2 to 32 different numbers"),
        ("--scaling 4", r"^--scaling needs 2 to 32 different numbers"),
        ("--scaling 1,2 -np 2", r"^--scaling cannot be combined with -np\. Remove one of them$"),
        (
            "--scaling 1,2 --tune lr=choice(1,2) --objective max:a",
            r"^--scaling cannot .* --tune\. Remove one",
        ),
        ("--scaling 1,2 --seed 1", r"^--seed works only with --tune\."),
        ("--scaling 1,2 --steps 0", r"^--steps needs a whole number of at least 1, got '0'$"),
        (
            "--steps 5",
            r"^--steps works only with --scaling\. Add the numbers of ranks, as in --scaling 1,2,4$",
        ),
        ("--backend ssh -H a:2 --scaling 1,2,4", r"^--scaling 4 needs more slots than the 2 of the hosts\."),
        ("--backend torchrun --nproc-per-node 2 --scaling 2,3", r"^--scaling 3: "),
    ],
)
def test_bad_input_is_one_error_before_the_start(own_folders: Path, line: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        make_plan(read_command_line(shlex.split(line)).given)
    assert "\n" not in str(error.value)
    assert not own_folders.exists()
