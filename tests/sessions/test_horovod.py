"""Ranks of a session that wait for others in Horovod: they leave, keep their state, and meet again."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.record.sessions import find_session
from tests.rigs.launching import until
from tests.rigs.stopwatch import Stopwatch

from .conftest import Notebook
from .test_failures import waits_in

PRELOADED = ["torch"]
pytestmark = [
    pytest.mark.needs("torch", "horovod"),
    pytest.mark.usefixtures("warm"),
    pytest.mark.xdist_group("sessions of torch"),
]

TORCH = "import torch, os, time, horovod.torch as hvd\nrank = int(os.environ['RANK'])\nkept = [rank]\n"
SUM = "float(hvd.allreduce(torch.ones(1), op=hvd.Sum))"
AGAIN = f"hvd.init()\nkept[0], {SUM}"
IN_IT = "print('in it', flush=True)\n"


def pids() -> list[int]:
    session = find_session("main")
    assert session is not None
    return [rank["pid"] for rank in session.about["ranks"]]


def begin(notebook: Notebook) -> list[int]:
    assert notebook.results(f"{TORCH}hvd.init()\n{SUM}", "--session -np 2") == [2.0, 2.0]
    return pids()


def test_the_others_leave_their_operation_when_a_rank_raises(notebook: Notebook) -> None:
    before = begin(notebook)
    watch = Stopwatch()
    error = notebook.fails(f"if rank == 1: raise ValueError('planted')\n{SUM}")
    assert watch.under(3)
    assert str(error).startswith("rank 1")
    assert "planted" in str(error)
    assert "Horovod was shut down" in notebook.printed
    assert notebook.results(AGAIN) == [(0, 2.0), (1, 2.0)]
    assert notebook.results(SUM) == [2.0, 2.0]
    assert pids() == before


@pytest.mark.parametrize("request_", ["interrupt", "stop"])
def test_ranks_leave_an_operation_and_keep_their_state(notebook: Notebook, request_: str) -> None:
    before = begin(notebook)
    waits_in("in it", lambda folder: folder.request(request_))
    watch = Stopwatch()
    notebook.fails(f"{IN_IT}if rank == 0:\n    while True: time.sleep(0.1)\n{SUM}")
    assert watch.under(5)
    assert notebook.results(AGAIN) == [(0, 2.0), (1, 2.0)]
    assert pids() == before


def test_a_rank_that_was_killed_is_replaced_and_the_others_stay(notebook: Notebook) -> None:
    before = begin(notebook)
    error = notebook.fails(f"if rank == 1: os.kill(os.getpid(), 9)\n{SUM}")
    assert "SIGKILL" in str(error)
    assert notebook.results("'kept' in globals()") == [True, False]
    assert "rank 1 is a fresh process" in notebook.printed
    assert notebook.results(f"{TORCH}hvd.init()\n{SUM}") == [2.0, 2.0]
    assert pids()[0] == before[0]


def test_rank_0_that_was_killed_serves_the_meeting_again(notebook: Notebook) -> None:
    before = begin(notebook)
    notebook.fails(f"if rank == 0: os.kill(os.getpid(), 9)\n{SUM}")
    assert notebook.results(f"{TORCH}hvd.init()\n{SUM}") == [2.0, 2.0]
    assert pids()[1] == before[1]


def test_a_rank_leaves_although_the_other_one_does_not_answer(notebook: Notebook) -> None:
    before = begin(notebook)

    def interrupt(folder: RunFolder) -> Any:
        os.kill(before[1], signal.SIGSTOP)  # also Horovod's thread there
        folder.request("interrupt")
        # A time after which rank 1 is killed would hold for rank 0 too.
        until(folder, lambda status: status.ranks[0].state.ended, "the end of rank 0")
        folder.request("kill")

    waits_in("in it", interrupt)
    notebook.fails(f"if rank == 1: time.sleep(1000)\n{IN_IT}{SUM}", "--session --stop-grace 10m")
    assert notebook.results("'kept' in globals()") == [True, False]
    assert notebook.results(f"{TORCH}hvd.init()\n{SUM}") == [2.0, 2.0]
    assert pids()[0] == before[0]


def test_ranks_leave_hvd_init_when_a_rank_raises(notebook: Notebook) -> None:
    notebook.cell(TORCH, "--session -np 2")
    before = pids()
    watch = Stopwatch()
    error = notebook.fails("if rank == 1: raise ValueError('planted')\nhvd.init()")
    assert watch.under(3)
    assert "planted" in str(error)
    assert notebook.results(AGAIN) == [(0, 2.0), (1, 2.0)]
    assert notebook.results(f"hvd.shutdown()\n{AGAIN}") == [(0, 2.0), (1, 2.0)]
    assert pids() == before


def test_a_rank_that_dies_between_cells_is_replaced(notebook: Notebook, wait_for: Any) -> None:
    before = begin(notebook)
    os.kill(before[1], signal.SIGKILL)
    wait_for(lambda: find_session("main").about["ranks"][1]["state"] != "running", "the rank's end")  # type: ignore[union-attr]
    assert notebook.results("hvd.is_initialized() if 'hvd' in globals() else None") == [False, None]
    assert notebook.results(f"{TORCH}hvd.init()\n{SUM}") == [2.0, 2.0]


def test_an_optimizer_trains_on_after_an_interrupt(notebook: Notebook) -> None:
    notebook.cell(
        f"{TORCH}hvd.init()\nmodel = torch.nn.Linear(2, 1)\n"
        "optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), "
        "model.named_parameters())\n"
        "def step():\n    optimizer.zero_grad()\n    model(torch.ones(1, 2) * (rank + 1)).sum().backward()\n"
        "    optimizer.step()\n"
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0)\nstep()",
        "--session -np 2",
    )
    before = pids()
    waits_in("in it", lambda folder: folder.request("interrupt"))
    notebook.fails(f"{IN_IT}if rank == 1: time.sleep(1000)\nstep()")
    weights = notebook.results(
        "hvd.init()\nhvd.broadcast_parameters(model.state_dict(), root_rank=0)\nstep(); step()\n"
        "model.weight.tolist()"
    )
    assert weights[0] == weights[1]
    assert pids() == before


def test_a_model_gets_another_optimizer_in_a_later_cell(notebook: Notebook) -> None:
    optimizer = "optimizer = hvd.DistributedOptimizer(torch.optim.{0}(model.parameters(), lr=0.1), "
    optimizer += "model.named_parameters())\n"
    step = "def step(one):\n    one.zero_grad()\n    model(torch.ones(1, 2) * (rank + 1)).sum().backward()\n"
    step += "    one.step()\n    return model.weight.grad.tolist()\n"
    model = f"{TORCH}hvd.init()\nmodel = torch.nn.Linear(2, 1)\n{step}"
    mean = [[[1.5, 1.5]], [[1.5, 1.5]]]
    assert notebook.results(model + optimizer.format("SGD") + "step(optimizer)", "--session -np 2") == mean
    assert notebook.results(f"{optimizer.format('Adam')}step(optimizer)") == mean
    assert notebook.results("step(optimizer)") == mean
    notebook.fails("if rank == 1: raise ValueError('planted')\nstep(optimizer)")
    assert notebook.results(f"hvd.init()\n{optimizer.format('SGD')}step(optimizer)") == mean


@pytest.mark.needs("tensorflow")
def test_ranks_leave_an_operation_of_tensorflow(notebook: Notebook) -> None:
    total = "float(hvd.allreduce(tf.ones(1), op=hvd.Sum)[0])"
    begin = "import tensorflow as tf, os, horovod.tensorflow as hvd\nrank = int(os.environ['RANK'])\n"
    code = f"{begin}kept = tf.Variable(float(rank))\nhvd.init()\n{total}"
    assert notebook.results(code, "--session -np 2") == [2.0, 2.0]
    before = pids()
    watch = Stopwatch()
    error = notebook.fails(f"if rank == 1: raise ValueError('planted')\n{total}")
    assert watch.under(3)
    assert "planted" in str(error)
    waits_in("in it", lambda folder: folder.request("interrupt"))
    notebook.fails(f"hvd.init()\n{IN_IT}if rank == 0:\n    while True: pass\n{total}")
    assert notebook.results(f"hvd.init()\nfloat(kept), {total}") == [(0.0, 2.0), (1.0, 2.0)]
    assert pids() == before
