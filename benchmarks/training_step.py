"""What do step times, hints and the record of collectives cost a training step?"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from ._contenders import answer, ours
from ._processes import Failed, Family
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["digits", "transformer"]

_RANKS = 2
_LIMIT_S = 300.0


def digits(quick: bool = False) -> Benchmark:
    """Return the race over steps of the quickstart's network, of a few milliseconds each."""
    return _benchmark(
        "step-digits", "One step of the digits network", _DIGITS, 16, 20 if quick else 600, quick
    )


def transformer(quick: bool = False) -> Benchmark:
    """Return the race over steps of a transformer of 20 million parameters."""
    steps, title = 3 if quick else 30, "One step of a transformer of 20 M parameters"
    return _benchmark("step-transformer", title, _TRANSFORMER, 4, steps, quick)


def _benchmark(name: str, title: str, model: str, batch: int, steps: int, quick: bool) -> Benchmark:
    code = _LOOP.format(model=model, batch=batch, steps=steps)
    return Benchmark(
        name=name,
        title=title,
        contenders=[
            Contender("jupyter-dist, all that is on by default", lambda place: _ours(place, code), ours=True),
            Contender("torchrun", lambda place: _torchrun(place, code)),
        ],
        columns=[
            Column("cpu", "CPU time, ms per step", lambda s: f"{1e3 * s:,.3f}"),
            Column("wall", "median step, ms", lambda s: f"{1e3 * s:,.3f}"),
        ],
        headline="cpu",
        rounds=1 if quick else 15,
        warm_up=0 if quick else 1,
        packages=["torch"],
    )


_DIGITS = """
images, labels = torch.rand(38720, 1, 8, 8), torch.randint(10, (38720,))
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
)
"""
_TRANSFORMER = """
images, labels = torch.rand(640, 32, 512), torch.randint(10, (640,))
layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, 6), nn.Flatten(), nn.Linear(512 * 32, 64))
"""
# The first steps build buckets and caches. CPU time is that of all of a rank's threads: it shows less of what
# else the machine does.
_LOOP = """
import json, statistics, time
import torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
{model}
torch.distributed.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
data = torch.utils.data.TensorDataset(images, labels)
sampler = torch.utils.data.DistributedSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size={batch}, sampler=sampler)
walls = []
for number, (inputs, targets) in enumerate(loader):
    if number == 5:
        cpu, begin = time.process_time(), time.perf_counter()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number >= 5:
        now = time.perf_counter()
        walls.append(now - begin)
        begin = now
    if len(walls) == {steps}:
        break
cpu = (time.process_time() - cpu) / len(walls)
torch.distributed.barrier()
if torch.distributed.get_rank() == 0:
    print(json.dumps({{"cpu": cpu, "wall": statistics.median(walls)}}), flush=True)
torch.distributed.destroy_process_group()
"""


@contextlib.contextmanager
def _ours(folder: Path, code: str) -> Iterator[Measure]:
    with ours(folder, "import torch") as found:

        def measure() -> dict[str, float]:
            cell = f"%%distribute -np {_RANKS} --gpus-per-worker 0 --out bench_run\n{code}"
            found.run(cell, timeout_s=_LIMIT_S)
            return _measured(answer(found, "bench_run.log(0)"))

        yield measure


@contextlib.contextmanager
def _torchrun(folder: Path, code: str) -> Iterator[Measure]:
    script = folder / "script.py"
    script.write_text(code)
    family = Family()
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_RANKS}"]

    def measure() -> dict[str, float]:
        return _measured(family.run([*argv, str(script)], timeout_s=_LIMIT_S, cwd=folder))

    yield measure


def _measured(text: str) -> dict[str, float]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return {key: float(value) for key, value in found.items()}
    raise Failed(f"no measurement in its output: {text[-200:]!r}")
