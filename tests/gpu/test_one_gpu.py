"""Ranks on a real GPU. Only a machine with one runs these tests: `make test-gpu`.

Two ranks of NCCL share the GPU. NCCL refuses that, unless it takes them for ranks of different hosts.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.worker.gpus.devices import visible_gpus
from tests.sessions.conftest import Notebook

pytestmark = [pytest.mark.needs("torch")]

TWO = "-np 2 --gpus-per-worker 0.5"
NCCL = """
import os, time
os.environ["NCCL_HOSTID"] = "host" + os.environ["RANK"]
import torch
import torch.distributed as td
import jupyter_dist as dist
dist.init("nccl")
x = torch.ones(4, device=dist.device())
td.all_reduce(x)
torch.cuda.synchronize()
"""
MEETS = """
y = torch.ones(2, device="cuda")
td.all_reduce(y)
os.getpid(), y.tolist(), int(kept.sum())
"""


@pytest.fixture
def pids(notebook: Notebook) -> list[int]:
    """Two ranks of a session that have met over NCCL, and have a tensor on the GPU."""
    notebook.cell(f"{NCCL}\nkept = torch.ones(1 << 20, device='cuda')", f"--session {TWO}")
    return [result[0] for result in notebook.results(MEETS)]


def test_the_gpu_is_found_and_a_rank_uses_it(notebook: Notebook) -> None:
    assert len(visible_gpus()) >= 1
    run = notebook.cell(
        """
import os, time
import torch
import jupyter_dist as dist
dist.init()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
big = torch.randn(4096, 4096, device=device)
until = time.monotonic() + 3
while time.monotonic() < until:
    big = (big @ big).sigmoid()
torch.distributed.get_backend(), str(dist.device()), bool(big.isfinite().all())
""",
        "-np 1",
    )
    assert list(run.results) == [("nccl", "cuda:0", True)]
    used = run.system_metrics
    assert used[used["name"] == "system/gpu_memory"]["value"].max() > 100e6


def test_ranks_that_share_a_gpu_meet_over_gloo(notebook: Notebook) -> None:
    code = """
import torch
import jupyter_dist as dist
dist.init()
x = torch.full((2,), 1.0 + dist.rank(), device=dist.device())
torch.distributed.all_reduce(x)
torch.distributed.get_backend(), x.tolist()
"""
    assert notebook.results(code, TWO) == [("gloo", [3.0, 3.0])] * 2
    wrong = code.replace("dist.init()", 'dist.init("nccl")')
    assert "NCCL: Duplicate GPU detected" in str(notebook.fails(wrong, TWO))
    assert "hint: ranks share a GPU, which NCCL refuses" in str(notebook.fails(wrong, TWO))


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (
            "if dist.rank() == 1:\n    time.sleep(1000)",
            "rank 1 did not reach all_reduce #2 of float32[4]: rank 0 waits in it",
        ),
        ("if dist.rank() == 1:\n    raise SystemExit(0)", "rank 1 ended normally after #1"),
        (
            "if dist.rank() == 1:\n    td.barrier()",
            "rank 0 called all_reduce of float32[4], rank 1 called barrier",
        ),
    ],
    ids=["late", "gone", "another call"],
)
def test_the_card_compares_collectives_of_nccl(notebook: Notebook, plant: str, said: str) -> None:
    error = notebook.fails(f"{NCCL}\n{plant}\ntd.all_reduce(x)\nx.sum().item()", f"{TWO} --timeout 30")
    assert said in str(error)


def test_the_others_leave_nccl_when_a_rank_raises(notebook: Notebook, pids: list[int]) -> None:
    error = notebook.fails(
        "if dist.rank() == 1:\n    raise ValueError('planted')\ntd.all_reduce(x); x.tolist()"
    )
    assert "rank 1 failed first" in str(error)
    assert notebook.results(MEETS) == [(pid, [2.0, 2.0], 1 << 20) for pid in pids]


def test_an_interrupt_leaves_nccl(notebook: Notebook, pids: list[int]) -> None:
    code = """
open(f"rank-{dist.rank()}", "w").close()
if dist.rank() == 1:
    time.sleep(1000)
td.all_reduce(x)
x.tolist()
"""

    def interrupt() -> None:
        wait_until(lambda: Path("rank-0").exists() and Path("rank-1").exists(), "both ranks are in the cell")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    assert type(notebook.fails(code)).__name__ == "RunStopped"
    assert notebook.results(MEETS) == [(pid, [2.0, 2.0], 1 << 20) for pid in pids]


def test_a_rank_whose_gpu_has_failed_is_replaced(notebook: Notebook) -> None:
    notebook.cell("import os, torch\nkept = torch.ones(4, device='cuda')", "--session -np 1")
    (before,) = notebook.results("os.getpid()")
    error = notebook.fails("torch.zeros(4, device='cuda')[torch.tensor([9], device='cuda')].sum().item()")
    assert "hint: an index or a label is out of range on the GPU" in str(error)
    assert "note: rank 0 ends, because its GPU can do nothing more in this process" in notebook.printed
    (after,) = notebook.results("import os, torch\ntorch.ones(4, device='cuda').sum().item()\nos.getpid()")
    assert after != before


def test_memory_that_is_not_there_costs_the_session_nothing(notebook: Notebook) -> None:
    notebook.cell("import torch\nkept = torch.ones(4, device='cuda')", "--session -np 1")
    error = notebook.fails("torch.empty(1 << 42, dtype=torch.uint8, device='cuda')")
    assert "hint: the GPU is full" in str(error)
    assert notebook.results("kept.sum().item()") == [4.0]


def test_a_trace_has_the_kernels(notebook: Notebook) -> None:
    run = notebook.cell(
        """
import torch
weight = torch.nn.Parameter(torch.randn(512, 512, device="cuda"))
optimizer = torch.optim.SGD([weight], 0.01)
for step in range(4000):
    optimizer.zero_grad()
    (weight @ weight).sum().backward()
    optimizer.step()
""",
        "-np 1 --detach",
    )
    path = run.trace(steps=3)
    kinds = {event.get("cat") for event in json.loads(path.read_text())["traceEvents"]}
    assert "kernel" in kinds
    run.stop()


def test_objects_on_the_gpu_travel_there_and_back(notebook: Notebook) -> None:
    notebook.plain("import torch\nmodel = torch.nn.Linear(4, 2).cuda()\ndevice = torch.device('cuda:0')")
    run = notebook.cell("(next(model.parameters()).device == device, model.weight * 2)", "-np 1")
    ((same, doubled),) = run.results
    assert same
    weight = notebook.plain("model.weight")
    assert bool((doubled == weight.cpu() * 2).all())
    assert re.search(r"note: \d+ CUDA tensors travel through CPU memory", notebook.printed)
