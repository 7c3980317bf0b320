"""A notebook's array of 1 GB to 4 ranks that each sum it: how long, and how much memory?"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ._contenders import answer, ours, plain, with_engines
from ._notebook import Notebook
from ._processes import Failed
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["benchmark"]

_RANKS = 4
_LIMIT_S = 240.0
_HOLD_S = 0.5


def benchmark(quick: bool = False) -> Benchmark:
    megabytes = 8 if quick else 1000
    return Benchmark(
        name="ship-array",
        title=f"An array of {megabytes:,} MB to {_RANKS} ranks",
        contenders=[
            Contender("jupyter-dist", lambda place: _ours(place, megabytes), ours=True),
            Contender("ipyparallel `dv.push`", lambda place: _ipyparallel(place, megabytes)),
            Contender("accelerate notebook_launcher", lambda place: _accelerate(place, megabytes)),
        ],
        columns=[
            Column("seconds", "cell until all sums are in the notebook, s", lambda s: f"{s:.2f}"),
            Column("memory", "memory on top, MB", lambda size: f"{size / 1e6:,.0f}"),
        ],
        headline="seconds",
        rounds=1 if quick else 3,
        warm_up=0 if quick else 1,
        packages=["numpy", "ipyparallel", "accelerate"],
    )


def _array(megabytes: int) -> str:
    # Values that sum exactly in any order, and pages that really are there.
    return f"import numpy as np\na = np.arange({megabytes} * 125_000, dtype=np.float64) % 7\n"


def _sum(hold_s: float) -> str:
    """What a rank does, as one expression: sum, and keep the array for a moment so that it can be weighed."""
    return f"(float(a.sum()), __import__('time').sleep({hold_s}))[0]"


def _measured(found: Notebook, run: Callable[[float], tuple[float, list[float]]]) -> dict[str, float]:
    """Once for the time, and once more for the memory: looking at it takes time from the ranks."""
    expected = answer(found, "float(a.sum())")

    def checked(hold_s: float) -> float:
        seconds, sums = run(hold_s)
        if sums != [expected] * _RANKS:
            raise Failed(f"the sums are {sums}, not {_RANKS} times {expected}")
        return seconds

    seconds = checked(0.0)
    before = found.family.memory()
    with found.family.peak_memory() as peak:
        checked(_HOLD_S)
    return {"seconds": seconds, "memory": peak[0] - before}


@contextlib.contextmanager
def _ours(folder: Path, megabytes: int) -> Iterator[Measure]:
    def run(hold_s: float) -> tuple[float, list[float]]:
        cell = f"%%distribute -np {_RANKS} --out bench_run\n{_sum(hold_s)}"
        cells = found.run_all([cell, "print(list(bench_run.results))"], timeout_s=_LIMIT_S)
        # Otherwise every round leaves 1 GB on the disk.
        found.run("import shutil; shutil.rmtree(bench_run.folder.path)", timeout_s=_LIMIT_S)
        return cells[1].done - cells[0].sent, json.loads(cells[1].text)

    with ours(folder, _array(megabytes)) as found:
        yield lambda: _measured(found, run)


@contextlib.contextmanager
def _ipyparallel(folder: Path, megabytes: int) -> Iterator[Measure]:
    def run(hold_s: float) -> tuple[float, list[float]]:
        cell = (
            "dv.push({'a': a}, block=True)\n"
            f"dv.execute({f'result = {_sum(hold_s)}'!r}, block=True)\n"
            "print(list(dv['result']))"
        )
        done = found.run(cell, timeout_s=_LIMIT_S)
        found.run("dv.execute('del a', block=True); dv.results.clear(); rc.purge_everything()", timeout_s=60)
        return done.done - done.sent, json.loads(done.text.splitlines()[-1])

    with with_engines(folder, _RANKS, "import numpy as np") as found:
        found.run(_array(megabytes), timeout_s=60)
        yield lambda: _measured(found, run)


@contextlib.contextmanager
def _accelerate(folder: Path, megabytes: int) -> Iterator[Measure]:
    def run(hold_s: float) -> tuple[float, list[float]]:
        # Its ranks are forks of the notebook: they see the array, and can only print what they found.
        cell = (
            f'def total():\n    print(f"@@{{{_sum(hold_s)}}}@@", flush=True)\n'
            f"notebook_launcher(total, num_processes={_RANKS})"
        )
        done = found.run(cell, timeout_s=_LIMIT_S)
        return done.done - done.sent, [float(text) for text in re.findall(r"@@([\d.]+)@@", done.text)]

    with plain(folder, f"{_array(megabytes)}from accelerate import notebook_launcher") as found:
        yield lambda: _measured(found, run)
