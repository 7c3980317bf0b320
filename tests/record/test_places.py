"""Where each rank was when a time limit or a user ended the run, on the card."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_dist.job import Stall, State
from jupyter_dist.record.failures.card import card
from jupyter_dist.record.failures.places import of_frames
from jupyter_dist.showing import failure_report
from tests.record.test_stacks import CELL, WORKER, dump, waiting, write_payload
from tests.rigs.run_maker import BEGAN, RunMaker

TIMED_OUT = "not done within --timeout 20 s"
PARTED = "rank 1 did not reach all_reduce: ranks 0,2 wait in it"
OWN_MODULE = "/home/me/project/loops.py"


@pytest.fixture
def hung(own_folders: Path) -> RunMaker:
    """Ranks 0 and 2 wait in a collective, at two places of a library, and rank 1 is elsewhere."""
    made = RunMaker(own_folders, 3)
    write_payload(made)
    deeper = dump(("/site-packages/torch/futures.py", 7, "wait"), (CELL, 2, "train"), (WORKER, 80, "run"))
    for rank, text in enumerate((waiting(), dump((OWN_MODULE, 12, "poll"), (CELL, 4, "<module>")), deeper)):
        made.rank(rank).stacks.write_text(text)
        os.utime(made.rank(rank).stacks, (BEGAN + 20, BEGAN + 20))
        made.set_rank(rank, state=State.STOPPED, signal=15, ended=BEGAN + 21)
    return made


def test_a_time_limit_says_where_each_rank_was(hung: RunMaker) -> None:
    found = card(hung.end(State.FAILED, after_s=21, reason=TIMED_OUT, stall=Stall(BEGAN + 3, BEGAN + 9)))
    assert found is not None
    assert found.headline == PARTED
    assert found.causes[0].endswith(TIMED_OUT)
    assert found.places == (
        "ranks 0,2 were at In[3], line 2: dist.all_reduce(x)",
        f"rank 1 was at {OWN_MODULE}, line 12",
    )
    assert found.causes[1].startswith("No rank had printed or logged anything since ")
    (stacks,) = [part for part in found.parts if part.kind == "stacks"]
    assert "In[3], line 2, in train" in stacks.text
    assert "jupyter_dist" not in stacks.text


def test_a_stopped_run_that_hung_says_it_too_and_another_one_is_one_line(hung: RunMaker) -> None:
    run = hung.end(State.STOPPED, after_s=21, reason="stopped by the user")
    lines = failure_report.stopped(run, hung.status).split("\n")
    assert lines[0] == PARTED
    assert lines[2] == f"what was noticed first: run {run.id} was stopped after 21.0 s: stopped by the user"
    assert lines[3] == "ranks 0,2 were at In[3], line 2: dist.all_reduce(x)"
    # Stacks that were taken long before the end do not show where a rank was.
    hung.end(State.STOPPED, after_s=600, reason="stopped by the user")
    assert failure_report.stopped(run, hung.status) == (
        f"run {run.id} was stopped after 10 min 0 s: stopped by the user"
    )


@pytest.mark.parametrize("printed", [False, True])
def test_ranks_that_have_just_logged_or_printed_may_only_be_slower(hung: RunMaker, printed: bool) -> None:
    if printed:
        hung.rank(2).output.write_text("step 7\n")
        os.utime(hung.rank(2).output, (BEGAN + 18, BEGAN + 18))
    else:
        hung.event(0, "metric", BEGAN + 18, values={"loss": 1.0}, step=7)
    found = card(hung.end(State.FAILED, after_s=21, reason=TIMED_OUT))
    assert found is not None
    assert found.what == TIMED_OUT


def test_many_places_are_counted(own_folders: Path) -> None:
    made = RunMaker(own_folders, 9)
    for rank in range(9):
        made.rank(rank).stacks.write_text(dump((f"/home/me/part{rank}.py", 1, "f")))
        made.set_rank(rank, state=State.STOPPED, signal=15, ended=BEGAN + 21)
    found = card(made.end(State.FAILED, reason=TIMED_OUT, stall=Stall(BEGAN, BEGAN)))
    assert found is not None
    assert len(found.places) == 4
    assert found.places[-1] == "6 more places: see the stacks below"


def test_a_traceback_ends_at_the_users_line() -> None:
    frames = [
        {"file": CELL, "label": "In[3]", "line": 9, "function": "<module>", "source": "fit(net)"},
        {"file": OWN_MODULE, "label": OWN_MODULE, "line": 4, "function": "fit", "source": "net(x)"},
        {"file": "/site-packages/torch/nn/linear.py", "line": 125, "function": "forward", "source": "F.l(x)"},
        "anything",
    ]
    assert of_frames(frames) == f"at {OWN_MODULE}, line 4: net(x) (in forward)"  # type: ignore[arg-type]
    assert of_frames(frames[2:]) == "at /site-packages/torch/nn/linear.py, line 125: F.l(x)"  # type: ignore[arg-type]
    assert of_frames([]) == ""
    importing = {"file": "<frozen importlib._bootstrap>", "line": 1070, "function": "_find_and_load"}
    imported = of_frames([*frames[2:], importing])  # type: ignore[list-item]
    assert imported == "at /site-packages/torch/nn/linear.py, line 125: F.l(x) (in _find_and_load)"
