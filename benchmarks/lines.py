"""Two ranks print as fast as they can: how soon can all of it be read, and is all of it there?"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ._contenders import answer, ours, with_engines
from ._notebook import Notebook
from ._processes import Failed, Family
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["benchmark", "check"]

_RANKS = 2
_LIMIT_S = 120.0
_TEXT = "the quick brown fox jumps over the lazy dog"
_LINE = re.compile(rf"(\d+) (\d+) {_TEXT}")
_STAMP = re.compile(r"@@(\d+) (\d+\.\d+)@@")


def benchmark(quick: bool = False) -> Benchmark:
    count = 2_000 if quick else 200_000
    return Benchmark(
        name="lines",
        title=f"{_RANKS} ranks print {count:,} lines each",
        contenders=[
            Contender("jupyter-dist", lambda place: _ours(place, count, ""), ours=True),
            Contender("jupyter-dist, `--detach`", lambda place: _ours(place, count, "--detach"), ours=True),
            Contender("ipyparallel `%%px`", lambda place: _ipyparallel(place, count, cell=True)),
            Contender("ipyparallel `view.execute`", lambda place: _ipyparallel(place, count, cell=False)),
            Contender("torchrun --tee 3, files", lambda place: _torchrun(place, count, console=False)),
            Contender("torchrun --tee 3, console", lambda place: _torchrun(place, count, console=True)),
        ],
        columns=[
            Column("rate", "lines/s, from the cell on", lambda rate: f"{rate:,.0f}"),
            Column("start", "until the first line, s", lambda s: f"{s:.2f}"),
            Column("print", "first to last line, s", lambda s: f"{s:.2f}"),
            Column("rest", "last line to all readable, s", lambda s: f"{s:.2f}"),
            Column("lost", "lost", lambda number: f"{number:,.0f}"),
            Column("torn", "torn", lambda number: f"{number:,.0f}"),
            Column("turned", "out of order", lambda number: f"{number:,.0f}"),
        ],
        headline="rate",
        more_is_better=True,
        rounds=1 if quick else 5,
        warm_up=0 if quick else 1,
        packages=["ipyparallel", "torch", "ipykernel"],
    )


def _code(count: int) -> str:
    """What every rank of every contender runs: plain prints, with the time before and after them."""
    return (
        "import os, time\n"
        "tag = os.getpid()\n"
        'print(f"@@{tag} {time.time():.6f}@@", flush=True)\n'
        f"for i in range({count}):\n"
        f'    print(f"{{tag}} {{i}} {_TEXT}")\n'
        'print(f"@@{tag} {time.time():.6f}@@", flush=True)\n'
    )


def check(texts: Sequence[str], count: int) -> dict[str, float]:
    """Count what is missing, torn and out of order in the ranks' texts (or the one text of all).

    `begin` and `end` are the times at which the first rank began and the last one ended.
    """
    found: set[tuple[str, str]] = set()
    times: list[float] = []
    latest: dict[str, int] = {}
    torn = turned = 0
    for text in texts:
        for line in text.split("\n"):
            if match := _LINE.fullmatch(line):
                tag, number = match.groups()
                found.add((tag, number))
                turned += int(number) <= latest.get(tag, -1)
                latest[tag] = int(number)
            elif match := _STAMP.fullmatch(line):
                times.append(float(match[2]))
            elif line:
                torn += 1
    if not times:
        raise Failed("not even the first line arrived")
    return {
        "begin": min(times),
        "end": max(times),
        "lost": _RANKS * count - len(found),
        "torn": torn,
        "turned": turned,
    }


def _sample(texts: Sequence[str], count: int, sent: float, readable: float | None) -> dict[str, float]:
    """`readable`: when all could be read; None when that is the end of the last rank's printing."""
    checked = check(texts, count)
    begin, end = checked.pop("begin"), checked.pop("end")
    readable = end if readable is None else readable
    rate = (_RANKS * count - checked["lost"]) / (readable - sent)
    return {"rate": rate, "start": begin - sent, "print": end - begin, "rest": readable - end, **checked}


def _from_notebook(found: Notebook, codes: list[str], count: int) -> dict[str, float]:
    """Run the cells, the last of which makes `texts` and `readable`."""
    cells = found.run_all(codes, timeout_s=_LIMIT_S)
    files = [found.folder / f"{rank}.txt" for rank in range(_RANKS)]
    names = [str(file) for file in files]
    found.run(
        f"for name, text in zip({names!r}, texts):\n"
        "    with open(name, 'w', encoding='utf-8', newline='') as file: file.write(text)\n",
        timeout_s=_LIMIT_S,
    )
    texts = [file.read_bytes().decode() for file in files]
    return _sample(texts, count, cells[0].sent, answer(found, "readable"))


@contextlib.contextmanager
def _ours(folder: Path, count: int, flags: str) -> Iterator[Measure]:
    run = f"%%distribute -np {_RANKS} --out bench_run {flags}\n{_code(count)}"
    read = (
        f"import time; bench_run.wait(); texts = [bench_run.log(rank) for rank in range({_RANKS})]; "
        "readable = time.time()"
    )
    with ours(folder) as found:
        yield lambda: _from_notebook(found, [run, read], count)


@contextlib.contextmanager
def _ipyparallel(folder: Path, count: int, *, cell: bool) -> Iterator[Measure]:
    code = _code(count)
    run = (
        f"%%px --out result\n{code}" if cell else f"result = dv.execute({code!r}, silent=False, block=False)"
    )
    read = (
        f"import time; result.get(); result.wait_for_output({_LIMIT_S}); "
        "texts = list(result.stdout); readable = time.time()"
    )
    with with_engines(folder, _RANKS) as found:
        yield lambda: _from_notebook(found, [run, read], count)


@contextlib.contextmanager
def _torchrun(folder: Path, count: int, *, console: bool) -> Iterator[Measure]:
    script = folder / "script.py"
    script.write_text(_code(count))
    family = Family()
    number = 0

    def measure() -> dict[str, float]:
        nonlocal number
        number += 1
        logs = folder / str(number)
        argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_RANKS}"]
        argv += ["--tee", "3", "--log-dir", str(logs), str(script)]
        output = folder / "console.log"
        with output.open("wb") as file, (folder / "errors.log").open("wb") as errors:
            sent = time.time()
            process = subprocess.Popen(
                argv,
                env=family.environ(),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=errors,
                start_new_session=True,
            )
            try:
                process.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise Failed(f"not done within {_LIMIT_S:g} s") from None
            finally:
                ended = time.time()
                family.end()
                process.wait()
        if console:
            text = re.sub(r"^\[default\d+\]:", "", output.read_bytes().decode(), flags=re.MULTILINE)
            return _sample([text], count, sent, ended)
        # The ranks write the files themselves: what they have flushed can be read.
        files = sorted(logs.rglob("stdout.log"))
        return _sample([file.read_bytes().decode() for file in files], count, sent, None)

    yield measure
