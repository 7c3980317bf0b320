"""How long from sending a cell until user code with its imports prints on every rank?"""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ._contenders import answer, in_parallel_kernels, ours, plain, with_engines
from ._notebook import Cell, Notebook
from ._processes import Failed, Family, last_line
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["benchmark", "kept"]

_RANKS = 2
_LIMIT_S = 60.0
_STAMP = re.compile(r"@@(\d+) (\d+\.\d+)@@")


def benchmark(quick: bool = False) -> Benchmark:
    # torch takes seconds to import; the quick form only shows that everything works.
    module = "numpy" if quick else "torch"
    return Benchmark(
        name="first-line",
        title="From a cell to the first line of every rank",
        contenders=[
            Contender("jupyter-dist, warm", lambda place: _ours(place, module, ""), ours=True),
            Contender("jupyter-dist, `--cold`", lambda place: _ours(place, module, "--cold"), ours=True),
            Contender("torchrun --standalone", lambda place: _torchrun(place, module)),
            Contender("accelerate notebook_launcher", lambda place: _accelerate(place, module)),
            Contender("ipyparallel, engines kept", lambda place: _ipyparallel(place, module)),
            Contender("jupyter-distributed, kernels kept", lambda place: _jupyter_distributed(place, module)),
        ],
        columns=[
            Column("written", "first line of every rank, ms", _ms),
            Column("seen", "seen in the notebook, ms", _ms),
            Column("done", "cell done, ms", _ms),
        ],
        headline="written",
        rounds=1 if quick else 10,
        warm_up=0 if quick else 1,
        packages=["torch", "accelerate", "ipyparallel", "jupyter-distributed", "ipykernel"],
    )


def kept(quick: bool = False) -> Benchmark:
    """Return the race of a cell in ranks that stay between cells."""
    return Benchmark(
        name="session-cell",
        title="From a cell to the first line of every rank that has stayed",
        contenders=[
            Contender("jupyter-dist `--session`", _ours_kept, ours=True),
            Contender("ipyparallel `%%px`", lambda place: _ipyparallel(place, "sys")),
            Contender("jupyter-distributed", lambda place: _jupyter_distributed(place, "sys")),
        ],
        columns=[
            Column("written", "first line of every rank, ms", _tenths),
            Column("seen", "seen in the notebook, ms", _tenths),
            Column("done", "cell done, ms", _tenths),
        ],
        headline="written",
        rounds=1 if quick else 40,
        warm_up=1 if quick else 5,
        packages=["ipyparallel", "jupyter-distributed", "ipykernel"],
    )


def _tenths(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}"


@contextlib.contextmanager
def _ours_kept(folder: Path) -> Iterator[Measure]:
    with ours(folder) as found:
        found.run(f"%%distribute --session -np {_RANKS}\npass", timeout_s=_LIMIT_S)
        number = itertools.count()

        def measure() -> dict[str, float]:
            # A user's next cell is another one: what a kernel remembers of the same cell does not count.
            code = f"%%distribute --session --out bench_run\n{_code('sys')}# {next(number)}"
            sample = _in_cell(found, code)()
            logs = answer(found, "[*map(bench_run.log, range(2))]")
            if not all("first line\n" in log for log in logs):
                raise Failed(f"the logs are not whole: {logs}")
            return sample

        yield measure


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f}"


def _code(module: str) -> str:
    """What every rank of every contender runs. The time is taken when the first line is written."""
    return (
        "import os, time\n"
        f"import {module}\n"
        'print("first line", flush=True)\n'
        'print(f"@@{os.getpid()} {time.time():.6f}@@", flush=True)\n'
    )


def _sample(seen: Mapping[str, float], sent: float, done: float) -> dict[str, float]:
    """From when which stamp was seen to the columns; `seen` maps "@@PID TIME@@" to a time."""
    written = {match[1]: float(match[2]) for text in seen if (match := _STAMP.fullmatch(text))}
    if len(written) != _RANKS:
        raise Failed(f"lines of {len(written)} of {_RANKS} ranks arrived")
    return {"written": max(written.values()) - sent, "seen": max(seen.values()) - sent, "done": done - sent}


_WATCH = re.compile(r"@@\d+ \d+\.\d+@@")


def _of(cell: Cell) -> dict[str, float]:
    return _sample(cell.seen, cell.sent, cell.done)


def _in_cell(found: Notebook, code: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        return _of(found.run(code, timeout_s=_LIMIT_S, watch=_WATCH))

    return measure


@contextlib.contextmanager
def _ours(folder: Path, module: str, flags: str) -> Iterator[Measure]:
    with ours(folder, f"import {module}") as found:
        run_cell = _in_cell(found, f"%%distribute -np {_RANKS} --out bench_run {flags}\n{_code(module)}")

        def measure() -> dict[str, float]:
            sample = run_cell()
            warm, *logs = answer(found, "[bench_run.status.warm, *map(bench_run.log, range(2))]")
            if warm == bool(flags):
                raise Failed(f"the start was {'warm' if warm else 'cold'}")
            if not all("first line\n" in log for log in logs):
                raise Failed(f"the logs are not whole: {logs}")
            return sample

        yield measure


@contextlib.contextmanager
def _torchrun(folder: Path, module: str) -> Iterator[Measure]:
    script = folder / "script.py"
    script.write_text(_code(module))
    family = Family()
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_RANKS}"]

    def measure() -> dict[str, float]:
        log = folder / "console.log"
        seen: dict[str, float] = {}
        with log.open("wb") as file:
            sent = time.time()
            process = subprocess.Popen(
                [*argv, str(script)],
                env=family.environ(),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            while (code := process.poll()) is None:
                now = time.time()
                if now - sent > _LIMIT_S:
                    raise Failed(f"not done within {_LIMIT_S:g} s")
                for stamp in _WATCH.findall(log.read_text(errors="replace")):
                    seen.setdefault(stamp, now)
                time.sleep(0.005)
            done = time.time()
        finally:
            family.end()
            process.wait()
        if code:
            raise Failed(f"exit code {code}: {last_line(log.read_text(errors='replace'))}")
        return _sample(seen, sent, done)

    yield measure


@contextlib.contextmanager
def _accelerate(folder: Path, module: str) -> Iterator[Measure]:
    setup = f"import {module}\nfrom accelerate import notebook_launcher"
    body = "".join(f"    {line}\n" for line in _code(module).splitlines())
    with plain(folder, setup) as found:
        yield _in_cell(found, f"def train():\n{body}notebook_launcher(train, num_processes={_RANKS})")


@contextlib.contextmanager
def _ipyparallel(folder: Path, module: str) -> Iterator[Measure]:
    with with_engines(folder, _RANKS, f"import {module}") as found:
        yield _in_cell(found, f"%%px\n{_code(module)}")


@contextlib.contextmanager
def _jupyter_distributed(folder: Path, module: str) -> Iterator[Measure]:
    with in_parallel_kernels(folder, _RANKS, f"import {module}") as found:
        yield _in_cell(found, _code(module))
