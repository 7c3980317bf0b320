"""What users are promised, seen through real kernels: whatever dies, the run is told right."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.record import reader
from tests.rigs.launching import until
from tests.rigs.stopwatch import Stopwatch, WaitFor

LOAD = "%load_ext jupyter_dist"

TRAINING = """
%%distribute -np 2 --detach --out run
import time
import jupyter_dist as dist
for step in range(10**9):
    dist.log(loss=1 / (step + 1), step=step)
    print("line", step)
    time.sleep(0.005)
"""


def newest() -> RunFolder | None:
    return next(folders.runs(), None)


def training(wait_for: WaitFor, but_not: str | None = None) -> RunFolder:
    """The newest run, once both of its ranks have printed, and its state has their pids."""

    def printing() -> RunFolder | None:
        run = newest()
        if run is None or run.id == but_not:
            return None
        prints = all(len(reader.output(run, rank)) > 100 for rank in (0, 1))
        return run if prints and len(pids(run)) == 2 else None

    found: RunFolder = wait_for(printing, what="a run that prints")
    return found


def pids(run: RunFolder) -> list[int]:
    return [rank.pid for rank in reader.status(run).ranks if rank.pid is not None]


def gone(*processes: int) -> bool:
    return all(reader.start_ticks(pid) is None for pid in processes)


def is_whole(run: RunFolder, rank: int) -> bool:
    """Whether all the rank wrote is there, line by line and metric by metric, without a gap."""
    lines = reader.output(run, rank).decode().splitlines()
    steps = [e.data["step"] for e in reader.events(run) if e.kind == "metric" and e.rank == rank]
    return (
        lines == [f"line {step}" for step in range(len(lines))]
        and steps == list(range(len(steps)))
        and len(steps) - len(lines) in (0, 1)
        and len(lines) > 5
    )


def stop(run: RunFolder, wait_for: WaitFor) -> None:
    run.request("kill")
    wait_for(lambda: reader.status(run).state.ended, "the run's end")


@pytest.mark.parametrize("flags", ["", " --cold"], ids=["warm", "cold"])
def test_a_killed_rank(kernel: Any, wait_for: WaitFor, flags: str) -> None:
    kernel.run(LOAD)
    cell = kernel.start(TRAINING.replace("--detach --out run", "--out run" + flags).strip())
    run = training(wait_for)
    ranks = pids(run)
    os.kill(ranks[1], signal.SIGKILL)
    watch = Stopwatch()
    cell.finish()
    assert watch.under(5)
    assert gone(*ranks)
    assert reader.status(run).state is State.FAILED
    assert "rank 1" in cell.error
    assert "SIGKILL" in cell.error
    assert "memory" in cell.error
    assert is_whole(run, 0)
    assert is_whole(run, 1)
    assert kernel.run("len(run.metrics) > 10").text.strip() == "True"


@pytest.mark.parametrize("flags", ["", " --cold"], ids=["warm", "cold"])
def test_a_killed_supervisor(kernel: Any, wait_for: WaitFor, flags: str) -> None:
    kernel.run(LOAD)
    cell = kernel.start(TRAINING.replace("--detach --out run", "--out run" + flags).strip())
    run = training(wait_for)
    ranks = pids(run)
    supervisor = reader.status(run).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    cell.finish()
    wait_for(lambda: gone(*ranks), "the ranks' end")
    assert reader.status(run).state is State.LOST
    assert "supervisor" in cell.error
    assert is_whole(run, 0)
    assert is_whole(run, 1)


def test_a_killed_kernel_and_another_one_that_attaches(
    start_kernel: Callable[[], Any], wait_for: WaitFor
) -> None:
    first = start_kernel()
    first.run(LOAD)
    first.start(TRAINING.replace(" --detach", "").strip())
    run = training(wait_for)
    first.kill()
    before = len(reader.output(run, 0))
    wait_for(lambda: len(reader.output(run, 0)) > before + 200, "the run to go on")
    until(run, lambda status: status.state is State.RUNNING, "a running state")

    second = start_kernel()
    second.run(LOAD)
    cell = second.start(f"%dist attach {run.id}")
    lines = {f"line {step}" for step in range(len(reader.output(run, 0)))}
    cell.until(lambda cell: any(line in lines for line in cell.text.replace("] ", "]\n").splitlines()))
    size = len(cell.text)
    cell.until(lambda cell: cell.text[:size] != cell.text)
    second.interrupt()
    cell.finish()
    assert reader.status(run).state is State.RUNNING
    assert (
        second.run(f"import jupyter_dist; jupyter_dist.attach({run.id!r}).state.value").text.strip()
        == "'running'"
    )
    stop(run, wait_for)
    assert is_whole(run, 0)


def test_a_restarted_kernel_gets_its_run_back(kernel: Any, wait_for: WaitFor) -> None:
    kernel.run(LOAD)
    kernel.run(TRAINING.strip())
    run = training(wait_for)
    kernel.restart()
    kernel.run(LOAD)
    assert run.id in kernel.run("%dist runs").text
    run.request("stop")
    cell = kernel.start(f"r = %dist attach {run.id}").finish()
    assert cell.error is None
    assert kernel.run("(r.id, r.state.value)").text.strip() == f"({run.id!r}, 'stopped')"
    assert is_whole(run, 1)


def test_a_killed_template(kernel: Any, wait_for: WaitFor) -> None:
    kernel.run(LOAD)
    kernel.run(TRAINING.strip())
    run = training(wait_for)
    assert reader.status(run).warm
    kernel.run("import os\nfrom jupyter_dist.launch import template\nos.kill(template._template.pid, 9)")
    before = len(reader.output(run, 1))
    wait_for(lambda: len(reader.output(run, 1)) > before + 200, "the run to go on")
    kernel.run("%%distribute -np 2 --out again\n6 * 7")
    assert kernel.run("list(again.results)").text.strip() == "[42, 42]"
    stop(run, wait_for)
    assert is_whole(run, 0)


@pytest.mark.needs("torch")
def test_two_kernels_at_once(start_kernel: Callable[[], Any], wait_for: WaitFor) -> None:
    kernels = [start_kernel(), start_kernel()]
    for kernel in kernels:
        kernel.run(LOAD)
    source = """
%%distribute -np 2 --out run
import torch, torch.distributed as td
import jupyter_dist as dist
dist.init()
total = torch.zeros(1)
for step in range(50):
    part = torch.tensor([float(NUMBER)])
    td.all_reduce(part)
    total += part
    print("mine is", NUMBER)
float(total)
"""
    for number, kernel in enumerate(kernels):
        kernel.run(f"NUMBER = {number + 1}")
    cells = [kernel.start(source.strip()) for kernel in kernels]
    for number, (kernel, cell) in enumerate(zip(kernels, cells, strict=True)):
        cell.finish()
        assert cell.error is None, cell.text
        assert (
            kernel.run("list(run.results)").text.strip()
            == f"[{100.0 * (number + 1)}, {100.0 * (number + 1)}]"
        )
        log = kernel.run("print(run.log(1))").stdout
        assert set(log.split("\n")) == {f"mine is {number + 1}", ""}


@pytest.mark.needs("torch")
def test_the_rank_that_raises_is_named_while_others_wait_in_a_collective(kernel: Any) -> None:
    kernel.run(LOAD)
    kernel.run("import torch, torch.distributed as td")
    kernel.run("%%distribute -np 2\n1")  # the template is up
    watch = Stopwatch()
    cell = kernel.start(
        """
%%distribute -np 2
import jupyter_dist as dist
dist.init()
x = torch.ones(1)
td.all_reduce(x)
if dist.rank() == 1:
    raise ValueError("only here")
td.all_reduce(x)
""".strip()
    ).finish()
    assert watch.under(3)
    root, _, collateral = cell.error.partition("ValueError: only here")
    assert "rank 1" in root
    assert "rank 0" not in root
    assert 'raise ValueError("only here")' in cell.error
    assert "In[4], line 7" in cell.error  # as the editor counts, the magic's line included
    assert "rank 0" in collateral


@pytest.mark.needs("torch")
def test_a_notebook_that_has_computed_starts_warm_all_the_same(kernel: Any) -> None:
    kernel.run(LOAD)
    kernel.run(
        "import torch\n"
        "w = torch.randn(600, 600, requires_grad=True)\n"
        "(w @ torch.randn(600, 600)).exp().sum().backward()"
    )
    kernel.run(
        """
%%distribute -np 2 --out run --timeout 60
v = torch.randn(600, 600, requires_grad=True)
(v @ torch.randn(600, 600)).exp().sum().backward()
(tuple(v.grad.shape), tuple(w.shape))
""".strip()
    )
    assert (
        kernel.run("(run.status.warm, list(run.results))").text.strip()
        == "(True, [((600, 600), (600, 600)), ((600, 600), (600, 600))])"
    )


def test_interrupting_a_cell_stops_its_run_and_twice_kills_it(kernel: Any, wait_for: WaitFor) -> None:
    kernel.run(LOAD)
    cell = kernel.start(TRAINING.replace(" --detach", "").strip())
    run = training(wait_for)
    kernel.interrupt()
    cell.finish()
    assert reader.status(run).state is State.STOPPED
    assert "stopped" in cell.error

    stubborn = "%%distribute -np 2\nimport signal, time\n"
    stubborn += "for ignored in (signal.SIGINT, signal.SIGTERM): signal.signal(ignored, signal.SIG_IGN)\n"
    cell = kernel.start(stubborn + "print('x' * 200)\ntime.sleep(600)")
    second = training(wait_for, but_not=run.id)
    kernel.interrupt()
    wait_for(lambda: (second.requests / "interrupt").exists(), "the request")
    watch = Stopwatch()
    kernel.interrupt()
    cell.finish()
    assert watch.under(4)  # sooner than the grace of a stop
    assert reader.status(second).state is State.STOPPED


def test_an_array_is_mapped_by_the_ranks_not_copied(kernel: Any) -> None:
    kernel.run(LOAD)
    kernel.run("import numpy as np\nbig = np.ones((64, 1 << 20), dtype=np.float32)  # 256 MB")
    kernel.run(
        """
%%distribute -np 4 --out run
total = float(big[::4096 // 64].sum())
fields = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
private = sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty"))
before = float(big[0, 0])
big[0, 0] = 5 + before
(total, private / 1024, float(big[0, 0]))
""".strip()
    )
    results = json.loads(kernel.run("import json; print(json.dumps(list(run.results)))").stdout)
    for total, private_mb, changed in results:
        assert total == 1 << 20
        assert private_mb < 128
        assert changed == 6.0
    assert kernel.run("float(big[0, 0])").text.strip() == "1.0"


def test_the_saved_output_of_a_flood_stays_small(kernel: Any) -> None:
    kernel.run(LOAD)
    cell = kernel.start(
        "%%distribute -np 2 --out run\nfor i in range(100_000):\n    print('a line of the flood', i)"
    ).finish()
    assert cell.error is None
    assert len(json.dumps(cell.displays)) + len(cell.stdout) + len(cell.stderr) < 100_000
    sent = sum(len(json.dumps(content)) for _, content in cell.messages)
    assert sent < 1_000_000
    kernel.run("whole = ''.join(f'a line of the flood {i}\\n' for i in range(100_000))")
    assert kernel.run("[run.log(rank) == whole for rank in (0, 1)]").text.strip() == "[True, True]"
