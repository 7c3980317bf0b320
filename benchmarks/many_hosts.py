"""What does a rank cost where there are many of them, over hosts reached by SSH?"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

# The hosts are those of the tests, which are no package.
from tests.rigs.hosts import Hosts, missing

from ._contenders import answer, ours
from ._processes import Failed
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["benchmark"]

_HOSTS = 8
_LIMIT_S = 180.0
_STAMP = re.compile(r"@@(first|last) (\d+\.\d+)@@")
_CELL = """\
import time
print(f"@@first {{time.time():.6f}}@@")
time.sleep({pause})
for i in range({lines}):
    print(f"line {{i}} " + 40 * "x")
print(f"@@last {{time.time():.6f}}@@")
"""


def benchmark(quick: bool = False) -> Benchmark:
    sizes = [_HOSTS, 2 * _HOSTS] if quick else [_HOSTS, 64]
    lines = 100 if quick else 1000
    return Benchmark(
        name="hosts",
        title=f"Many ranks on {_HOSTS} hosts",
        contenders=[
            Contender(f"jupyter-dist, {size} ranks", partial(_ranks, size=size, lines=lines), ours=True)
            for size in sizes
        ],
        columns=[
            Column("start", "first line of every rank, s", _s),
            Column("end", "last line to cell done, s", _s),
            Column("total", "cell done, s", _s),
            Column("each", "per rank, ms", lambda s: f"{1000 * s:.0f}"),
            Column("memory", "memory per rank, MB", lambda size: f"{size / 1e6:.1f}"),
            Column("lost", "lines lost", lambda n: f"{n:,.0f}"),
        ],
        headline="each",
        rounds=1 if quick else 5,
        warm_up=0 if quick else 1,
        packages=["ipykernel"],
        ratios=False,
    )


def _s(seconds: float) -> str:
    return f"{seconds:.2f}"


@contextlib.contextmanager
def _ranks(folder: Path, *, size: int, lines: int) -> Iterator[Measure]:
    lacking = missing()
    if lacking:
        raise Failed(lacking)
    # Long enough for the last rank to start, so that all are weighed at once.
    pause_s = 0.5 + size / 10
    with Hosts(folder / "hosts", [f"h{i + 1}" for i in range(_HOSTS)]) as hosts, ours(folder) as found:
        among = ",".join(f"{name}:{-(-size // _HOSTS)}" for name in hosts.names)
        flags = f"-np {size} -H {among} --ssh-config {hosts.ssh_config} --python {sys.executable}"
        code = (
            f"%%distribute --backend ssh {flags} --out bench_run\n{_CELL.format(pause=pause_s, lines=lines)}"
        )

        def measure() -> dict[str, float]:
            known = set(_runs(folder))
            stop = threading.Event()
            weighed: list[int] = []
            weigher = threading.Thread(target=_weigh, args=(hosts, folder, known, size, stop, weighed))
            weigher.start()
            try:
                cell = found.run(code, timeout_s=_LIMIT_S)
            finally:
                stop.set()
                weigher.join()
            logs = answer(found, f"[*map(bench_run.log, range({size}))]", timeout_s=_LIMIT_S)
            stamps = _stamps(logs)
            if not len(stamps["first"]) == len(stamps["last"]) == size:
                raise Failed(f"{len(stamps['last'])} of {size} ranks came to their last line")
            if not weighed:
                raise Failed("the ranks were gone before they were weighed")
            start, end = max(stamps["first"]) - cell.sent, cell.done - max(stamps["last"])
            there = sum(log.count("\nline ") for log in logs)
            return {
                "start": start,
                "end": end,
                "total": cell.done - cell.sent,
                "each": (start + end) / size,
                "memory": weighed[0] / size,
                "lost": size * lines - there,
            }

        yield measure


def _stamps(logs: list[str]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"first": [], "last": []}
    for log in logs:
        for name, when in _STAMP.findall(log):
            found[name].append(float(when))
    return found


def _runs(folder: Path) -> list[Path]:
    return sorted((folder / "runs").glob("*/attempts"))


def _weigh(
    hosts: Hosts, folder: Path, known: set[Path], size: int, stop: threading.Event, weighed: list[int]
) -> None:
    """When every rank of the new run has printed: the memory of all processes on the hosts, in bytes."""
    while not stop.wait(0.1):
        for run in set(_runs(folder)) - known:
            printed = [log for log in run.glob("0/ranks/*/output.log") if log.stat().st_size]
            if len(printed) == size:
                time.sleep(0.1)
                weighed.append(sum(map(_memory, (p.pid for name in hosts.names for p in hosts.pids(name)))))
                return


def _memory(pid: int) -> int:
    """What the process takes, shared pages by halves, thirds …: their sum is what all take."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
