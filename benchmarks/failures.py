"""Who names the rank and the cause of a failure, and after how many seconds? `python -m benchmarks.failures`.

Twelve failures are planted in rank 1 of 3, with ours and with peers. What a tool prints is kept whole in
`--out`. A tool names the rank if its own report does, and not only the prefix of a line of the script. It
names the cause if the text also has the words that a reader needs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._processes import Family

__all__ = ["main"]

_LIMIT_S = 90.0
_RANKS = 3
_HEAD = """
import contextlib, ctypes, os, sys, time
import torch, torch.distributed as d
torch.set_num_threads(1)
def planted():
    open({stamp!r}, "w").write(str(time.time()))
def traced(model):
    return contextlib.nullcontext()
{setup}
def opened():
    d.init_process_group("gloo")
    return d.get_rank()
"""
_LOOP = """
r = opened()
x = torch.ones(4)
for i in range(5):
    if r == 1 and i == 3:
        planted()
        {plant}
    d.all_reduce(x)
"""
_RING = """
r = opened()
planted()
d.recv(torch.ones(4), (r - 1) % 3)
d.send(torch.ones(4), (r + 1) % 3)
"""
_NO_INIT = """
planted()
if int(os.environ["RANK"]) == 1: time.sleep(600)
opened()
"""
_SLOW = """
r = opened()
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 320
    def __getitem__(self, row):
        time.sleep(0.03 if r == 1 else 0.001)
        return torch.ones(8)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
planted()
for batch in torch.utils.data.DataLoader(Rows(), batch_size=8):
    with traced(model):
        optimizer.zero_grad(); model(batch).sum().backward(); optimizer.step()
"""


@dataclass(frozen=True)
class Plant:
    """`cause`: words of which all are needed, as regular expressions."""

    title: str
    code: str
    cause: tuple[str, ...]


def _loop(plant: str, *cause: str) -> Plant:
    return Plant(f"`{plant}`", _LOOP.format(plant=plant), cause)


_PLANTS = {
    "raises": _loop("raise ValueError('bad batch 7')", r"ValueError: bad batch 7"),
    "segfault": _loop("ctypes.string_at(0)", r"SIGSEGV|Segmentation"),
    "killed": _loop("os.kill(os.getpid(), 9)", r"SIGKILL|signal 9"),
    "exit-0": _loop("os._exit(0)", r"exit", r"all_?reduce"),
    "ends-early": _loop("break", r"ended|finished|exited", r"all_?reduce"),
    "sleeps": _loop("time.sleep(600)", r"all_?reduce", r"time\.sleep"),
    "type": _loop("x = x.double()", r"float64|double", r"all_?reduce"),
    "shape": _loop("x = torch.ones(2, 3)", r"\[?2, 3\]?", r"all_?reduce"),
    "other-call": _loop("d.broadcast(x, 0); continue", r"broadcast", r"all_?reduce"),
    "ring": Plant("each rank receives before it sends", _RING, (r"recv", r"wait")),
    "no-init": Plant(
        "rank 1 does not open its process group", _NO_INIT, ("init_process_group", r"time\.sleep")
    ),
    "slow-loader": Plant("the data of rank 1 is slow", _SLOW, (r"data loader|[Ii]nput wait",)),
}


@dataclass(frozen=True)
class Tool:
    """`argv` returns what to start for a script. `culprit` matches where the tool names rank 1."""

    name: str
    argv: Callable[[Path], Sequence[str]]
    culprit: str
    setup: str = ""
    """What the tool needs in a script."""


def _ours(script: Path) -> Sequence[str]:
    starter = script.with_suffix(".ipy.py")
    starter.write_text(
        "get_ipython().run_line_magic('load_ext', 'jupyter_dist')\n"
        f"get_ipython().run_cell_magic('distribute', '-np {_RANKS} --gpus-per-worker 0', "
        f"open({str(script)!r}).read())\n"
    )
    return [sys.executable, "-m", "IPython", "--colors=NoColor", str(starter)]


def _torchrun(script: Path) -> Sequence[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, f"--nproc-per-node={_RANKS}", str(script)]


def _accelerate(script: Path) -> Sequence[str]:
    starter = script.with_suffix(".launch.py")
    starter.write_text(
        "import runpy\nfrom accelerate import notebook_launcher\n"
        f"def train(): runpy.run_path({str(script)!r})\n"
        f"notebook_launcher(train, num_processes={_RANKS})\n"
    )
    return [sys.executable, str(starter)]


def _ray(script: Path) -> Sequence[str]:
    starter = script.with_suffix(".ray.py")
    starter.write_text(
        "import os, runpy, ray\nfrom ray.train import ScalingConfig\n"
        "from ray.train.torch import TorchTrainer\n"
        f"ray.init(num_cpus={_RANKS}, include_dashboard=False)\n"
        "def train():\n"
        "    import torch.distributed as d\n"
        "    os.environ['RANK'] = str(ray.train.get_context().get_world_rank())\n"
        "    d.init_process_group = lambda *_: None  # it is open\n"
        f"    runpy.run_path({str(script)!r})\n"
        f"TorchTrainer(train, scaling_config=ScalingConfig(num_workers={_RANKS})).fit()\n"
    )
    return [sys.executable, str(starter)]


def _traceml(script: Path) -> Sequence[str]:
    python = os.environ.get("BENCHMARK_TRACEML", "traceml")
    return [python, "run", "--nproc-per-node", str(_RANKS), "--logs-dir", str(script.parent), str(script)]


_TOOLS = {
    "ours": Tool("jupyter-dist", _ours, r"^(?!\[1\]).*\brank 1\b|\branks wait for each other"),
    "torchrun": Tool("torchrun", _torchrun, r"Root Cause[^|]*?rank\s*: 1\b"),
    "accelerate": Tool("accelerate", _accelerate, r"Root Cause[^|]*?rank\s*: 1\b|process 1 "),
    "ray": Tool("Ray Train", _ray, r"\[Rank 1 Error Snippet\](?![^|]*\[Rank [02] Error)"),
    "traceml": Tool(
        "TraceML",
        _traceml,
        r"Root Cause[^|]*?rank\s*: 1\b|\b[Rr]ank 1\b|\br1\b",
        "import traceml_ai\ntraceml_ai.init(mode='auto')\ntraced = traceml_ai.trace_step",
    ),
}


def _measure(tool: Tool, plant: Plant, folder: Path) -> str:
    """Run one plant with one tool and return the cell of the table."""
    folder.mkdir(parents=True)
    script, stamp, log = folder / "script.py", folder / "planted", folder / "output.txt"
    script.write_text(_HEAD.format(stamp=str(stamp), setup=tool.setup) + plant.code)
    family = Family()
    with log.open("wb") as file:
        process = subprocess.Popen(
            tool.argv(script),
            env=family.environ({"JUPYTER_DIST_RUNS": str(folder / "runs"), "COLUMNS": "200"}),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    rank_s = cause_s = None
    try:
        while True:
            ended = process.poll() is not None
            begun = float(stamp.read_text() or "inf") if stamp.exists() else float("inf")
            text = log.read_text(errors="replace")
            named = re.search(tool.culprit, text, re.MULTILINE)
            since = time.time() - begun
            if named and rank_s is None:
                rank_s = since
            if named and cause_s is None and all(re.search(word, text) for word in plant.cause):
                cause_s = since
            if ended or cause_s is not None or since > _LIMIT_S:
                break
            time.sleep(0.05)
    finally:
        family.end()
        process.wait()
    if cause_s is not None:
        return f"rank and cause, {max(0.0, cause_s):.1f} s"
    return "nothing" if rank_s is None else f"rank, {max(0.0, rank_s):.1f} s"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failures", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which plants: {', '.join(_PLANTS)}; all by default")
    parser.add_argument("--tools", nargs="+", default=list(_TOOLS), choices=list(_TOOLS))
    parser.add_argument("--out", type=Path, help="where the output of each tool is kept")
    options = parser.parse_args(argv)
    out = options.out or Path(tempfile.mkdtemp(prefix="failures"))
    tools = [_TOOLS[name] for name in options.tools]
    print(f"| planted in rank 1 of {_RANKS} | {' | '.join(tool.name for tool in tools)} |")
    print("| --- |" + " --- |" * len(tools), flush=True)
    for name in options.names or _PLANTS:
        plant = _PLANTS[name]
        cells = [_measure(tool, plant, out / name / tool.name.replace(" ", "-")) for tool in tools]
        print(f"| {plant.title} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
