"""What does a cell through a launcher take on top of the launcher itself with the same script?"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ._contenders import answer, ours
from ._machine import wait_until_idle
from ._processes import Failed, Family, last_line
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["benchmark"]

_RANKS = 2
_LIMIT_S = 240.0
_IDLE_WITHIN_S = 30.0
_ABORTED = "terminate called without an active exception"
_TRIES = 3
"""A bare run whose training was done, and which aborted after that, is measured again."""

_TRAIN = """\
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
{start}
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
{wrap}
generator = torch.Generator().manual_seed({rank})
loss_of = torch.nn.CrossEntropyLoss()
for step in range({steps}):
    x = torch.randn(256, 64, generator=generator)
    y = x[:, :10].argmax(dim=1)
    optimizer.zero_grad()
    loss = loss_of(model(x), y)
    loss.backward()
    {average}
    optimizer.step()
    if step % 50 == 0:
        print(f"step {{step}} loss {{loss.item():.4f}}", flush=True)
print(f"rank {{{rank}}} has trained", flush=True)
{end}
"""
_SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


class _AbortedAfterTraining(Failed):
    """All ranks have trained, and one of them has aborted at its end."""


@dataclass(frozen=True)
class _Launcher:
    """One launcher: how it starts a script, our `flags` for the same, and how a script talks to its ranks."""

    name: str
    argv: tuple[str, ...]
    flags: str
    needs: tuple[str, ...]
    start: str
    rank: str
    wrap: str = _SGD
    average: str = "pass"
    end: str = ""

    def script(self, steps: int) -> str:
        """What bare ranks run as a script, and ours as a cell."""
        return _TRAIN.format(
            start=self.start,
            wrap=self.wrap,
            rank=self.rank,
            average=self.average,
            end=self.end,
            steps=steps,
        )


def _launchers() -> list[_Launcher]:
    beside = Path(sys.executable).parent
    horovodrun = shutil.which("horovodrun", path=f"{beside}:{os.environ.get('PATH', '')}") or "horovodrun"
    root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
    return [
        _Launcher(
            name="horovodrun",
            argv=(horovodrun, "-np", str(_RANKS), "--gloo", sys.executable),
            flags="--backend horovod --gloo",
            needs=("torch", "horovod"),
            start="import horovod.torch as hvd\nhvd.init()",
            rank="hvd.rank()",
            wrap=(
                f"{_SGD}\n"
                "optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())\n"
                "hvd.broadcast_parameters(model.state_dict(), root_rank=0)"
            ),
        ),
        _Launcher(
            name="torchrun",
            argv=(
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                f"--nproc-per-node={_RANKS}",
            ),
            flags="--backend torchrun",
            needs=("torch",),
            start="import torch.distributed as td\ntd.init_process_group('gloo')",
            rank="td.get_rank()",
            wrap=f"model = torch.nn.parallel.DistributedDataParallel(model)\n{_SGD}",
            # Without the barrier a bare rank aborts at its end in half of all runs, with it in one of twenty:
            # a thread of gloo's wants the interpreter that is being torn down (torch 2.13).
            end="td.barrier()\ntd.destroy_process_group()",
        ),
        _Launcher(
            name="mpirun",
            argv=("mpirun", *root, "--oversubscribe", "-np", str(_RANKS), sys.executable),
            flags="--backend mpi",
            needs=("torch", "mpi4py"),
            start="from mpi4py import MPI\nworld = MPI.COMM_WORLD",
            rank="world.Get_rank()",
            average=(
                "for p in model.parameters():\n"
                "        world.Allreduce(MPI.IN_PLACE, p.grad.numpy())\n"
                "        p.grad /= world.Get_size()"
            ),
        ),
    ]


def benchmark(quick: bool = False) -> Benchmark:
    steps = 20 if quick else 2000
    return Benchmark(
        name="launchers",
        title="A cell through a launcher, and the launcher alone",
        contenders=[
            Contender(launcher.name, partial(_both, launcher=launcher, steps=steps, quick=quick), ours=True)
            for launcher in _launchers()
        ],
        columns=[
            Column("cell", "`%%distribute`, s", _s),
            Column("bare", "the launcher alone, s", _s),
            Column("over", "on top", lambda part: f"{100 * part:+.1f}%"),
        ],
        headline="over",
        rounds=1 if quick else 5,
        warm_up=0 if quick else 1,
        packages=["torch", "horovod", "mpi4py", "ipykernel"],
        ratios=False,
    )


def _s(seconds: float) -> str:
    return f"{seconds:.2f}"


@contextlib.contextmanager
def _both(folder: Path, *, launcher: _Launcher, steps: int, quick: bool) -> Iterator[Measure]:
    """Each measurement runs the cell and the bare launcher, one right after the other, in turns first."""
    lacking = [name for name in launcher.needs if find_spec(name) is None]
    if lacking or shutil.which(launcher.argv[0]) is None:
        raise Failed(f"it needs {', '.join(lacking) or launcher.argv[0]}")
    source = launcher.script(steps)
    script = folder / "script.py"
    script.write_text(source)
    family = Family()
    turns = 0
    with ours(folder) as found:

        def cell() -> float:
            head = f"%%distribute {launcher.flags} -np {_RANKS} --cold --out bench_run"
            done = found.run(f"{head}\n{source}", timeout_s=_LIMIT_S)
            logs = answer(found, f"[*map(bench_run.log, range({_RANKS}))]")
            _check("".join(logs))
            return done.done - done.sent

        def bare() -> float:
            # Into a file, as a user's shell would have it: nobody has to keep up with reading.
            log = folder / "console.log"
            with log.open("wb") as file:
                began = time.time()
                process = subprocess.Popen(
                    [*launcher.argv, str(script)],
                    # As ours gives it to every rank; with a thread per core they hinder each other.
                    env=family.environ({"OMP_NUM_THREADS": "1"}),
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            try:
                code = process.wait(_LIMIT_S)
                took = time.time() - began
            except subprocess.TimeoutExpired:
                raise Failed(f"not done within {_LIMIT_S:g} s") from None
            finally:
                family.end()
                process.wait()
            text = log.read_text(errors="replace")
            _check(text)
            if code and _ABORTED in text:
                raise _AbortedAfterTraining(f"exit code {code} {_TRIES} times: {_ABORTED}")
            if code:
                raise Failed(f"exit code {code}: {last_line(text)}")
            return took

        def bare_that_ends_well() -> float:
            for _ in range(_TRIES - 1):
                with contextlib.suppress(_AbortedAfterTraining):
                    return bare()
            return bare()

        def measure() -> dict[str, float]:
            nonlocal turns
            turns += 1
            found_s = {}
            pair = [("cell", cell), ("bare", bare_that_ends_well)]
            for name, run in pair if turns % 2 else reversed(pair):
                if not quick:
                    wait_until_idle(_IDLE_WITHIN_S)
                found_s[name] = run()
            return {**found_s, "over": found_s["cell"] / found_s["bare"] - 1}

        yield measure


def _check(text: str) -> None:
    missing = [rank for rank in range(_RANKS) if f"rank {rank} has trained" not in text]
    if missing:
        raise Failed(f"ranks {missing} did not say that they have trained: {last_line(text)}")
