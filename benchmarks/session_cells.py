"""Ranks that stay between cells: what do 1,000 cells leave in memory, and how often is an array sent?"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from ._contenders import answer, in_parallel_kernels, ours, with_engines
from ._notebook import Cell, Notebook
from ._processes import Failed
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["array", "memory"]

_RANKS = 2
_LIMIT_S = 60.0
_PID = re.compile(r"@@(\d+)@@")
_CELL = "import os\nbatch = [{n}] * 1000\nprint(f'@@{{os.getpid()}}@@', flush=True)\n"


def memory(quick: bool = False) -> Benchmark:
    """Return the race of many cells, of which each assigns a variable and prints a line."""
    before, cells = (5, 20) if quick else (100, 1000)
    magic = f"%%distribute --session -np {_RANKS}\n"
    return Benchmark(
        name="session-memory",
        title=f"{cells:,} cells in a row",
        contenders=[
            Contender(
                "jupyter-dist `--session`",
                lambda place: _growth(ours(place), magic, before, cells),
                ours=True,
            ),
            Contender(
                "ipyparallel `%%px`",
                lambda place: _growth(with_engines(place, _RANKS), "%%px\n", before, cells),
            ),
            Contender(
                "jupyter-distributed",
                lambda place: _growth(in_parallel_kernels(place, _RANKS), "", before, cells),
            ),
        ],
        columns=[
            Column("kernel", "kernel, MB more", _megabytes),
            Column("between", "processes between, MB more", _megabytes),
            Column("rank", "a rank, MB more", _megabytes),
            Column("cell", "a cell, ms", lambda seconds: f"{1e3 * seconds:.1f}"),
        ],
        headline="kernel",
        rounds=1,
        warm_up=0,
        packages=["ipyparallel", "jupyter-distributed", "ipykernel"],
        ratios=False,
    )


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f}"


@contextlib.contextmanager
def _growth(
    opened: AbstractContextManager[Notebook], magic: str, before: int, cells: int
) -> Iterator[Measure]:
    """Measure what cells add to each kind of process, after `before` cells that fill the caches."""
    with opened as found:
        numbers = itertools.count()
        kernel = {found.kernel_pid}

        def run() -> Cell:
            return found.run(magic + _CELL.format(n=next(numbers)), timeout_s=_LIMIT_S, watch=_PID)

        def sizes(ranks: Collection[int]) -> dict[str, float]:
            between = {*found.family.pids()} - kernel - {*ranks}
            parts = {"kernel": kernel, "between": between, "rank": {*ranks}}
            weighed = {name: float(found.family.memory(pids)) for name, pids in parts.items()}
            return {**weighed, "rank": weighed["rank"] / _RANKS}

        def measure() -> dict[str, float]:
            ranks: set[int] = set()
            for _ in range(before):
                ranks = {int(match.strip("@")) for match in run().seen}
            if len(ranks) != _RANKS:
                raise Failed(f"lines of {len(ranks)} of {_RANKS} ranks arrived")
            first = sizes(ranks)
            took = 0.0
            for _ in range(cells):
                cell = run()
                took += cell.done - cell.sent
            last = sizes(ranks)
            return {**{name: last[name] - first[name] for name in first}, "cell": took / cells}

        yield measure


def array(quick: bool = False) -> Benchmark:
    """Return the race of cells that use an array of the notebook."""
    megabytes = 2 if quick else 100
    return Benchmark(
        name="session-array",
        title=f"An array of {megabytes} MB in cells of ranks that stay",
        contenders=[
            Contender("jupyter-dist `--session`", lambda place: _ours(place, megabytes), ours=True),
            Contender("ipyparallel `dv.push`, `%%px`", lambda place: _ipyparallel(place, megabytes)),
        ],
        columns=[
            Column("first", "first cell, s", lambda seconds: f"{seconds:.2f}"),
            Column("again", "next cell, array unchanged, s", lambda seconds: f"{seconds:.2f}"),
            Column("sent", "sent with the next cell, MB", _megabytes),
            Column("changed", "cell after a change, s", lambda seconds: f"{seconds:.2f}"),
        ],
        headline="again",
        rounds=1 if quick else 5,
        warm_up=0 if quick else 1,
        packages=["numpy", "ipyparallel"],
    )


_MAKE = "import numpy as np\na = np.full({megabytes} * 125_000, {value}.0)\n"


def _times(found: Notebook, megabytes: int, cell: Callable[[], Cell]) -> dict[str, float]:
    """Run three cells that sum a new array, the same array, and the array after a change in place."""
    value = next(_values)
    found.run(_MAKE.format(megabytes=megabytes, value=value), timeout_s=_LIMIT_S)
    expected, took = value * megabytes * 125_000, {}
    for name, change in (("first", ""), ("again", ""), ("changed", "a[0] += 1")):
        if change:
            found.run(change, timeout_s=_LIMIT_S)
            expected += 1
        done = cell()
        sums = [float(text) for text in re.findall(r"@@([\d.]+)@@", " ".join(done.seen))]
        if sums != [expected]:
            raise Failed(f"the ranks have the sums {sums}, not {expected}")
        took[name] = done.done - done.sent
    return took


_values = itertools.count(1)
_SUM = 'print(f"@@{float(a.sum())}@@", flush=True)\n'
_SUMS = re.compile(r"@@[\d.]+@@")


@contextlib.contextmanager
def _ours(folder: Path, megabytes: int) -> Iterator[Measure]:
    sizes: list[float] = []
    size = "sum(path.stat().st_size for path in bench_run.folder.path.glob('payload*'))"
    with ours(folder) as found:
        found.run(f"%%distribute --session -np {_RANKS}\npass", timeout_s=_LIMIT_S)

        def cell() -> Cell:
            done = found.run(
                f"%%distribute --session --out bench_run\n{_SUM}", timeout_s=_LIMIT_S, watch=_SUMS
            )
            sizes.append(answer(found, size))
            return done

        def measure() -> dict[str, float]:
            sizes.clear()
            return {**_times(found, megabytes, cell), "sent": sizes[1]}

        yield measure


@contextlib.contextmanager
def _ipyparallel(folder: Path, megabytes: int) -> Iterator[Measure]:
    with with_engines(folder, _RANKS, "import numpy as np") as found:

        def cell() -> Cell:
            push = found.run("dv.push({'a': a}, block=True)", timeout_s=_LIMIT_S)
            done = found.run(f"%%px\n{_SUM}", timeout_s=_LIMIT_S, watch=_SUMS)
            done.sent = push.sent
            return done

        yield lambda: _times(found, megabytes, cell)
