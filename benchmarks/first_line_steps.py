"""Where does the time until a rank's first line go? `python -m benchmarks.first_line_steps [--other FOLDER]`.

Four processes take part: the kernel, the template, the supervisor and the ranks. Their marks have one clock.
`--session`: measure a cell of a session, whose supervisor and ranks have stayed. Such a cell has no template.
tracing/sitecustomize.py sets the marks from outside. `--other`: a folder with another jupyter_dist, whose
rounds alternate with those of this one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._contenders import own_folders
from ._machine import wait_until_idle
from ._notebook import Notebook, notebook

__all__ = ["main"]

_ROOT = Path(__file__).parents[1]
_RANKS = 2
_LIMIT_S = 60.0
_CODE = """\
import json, os, resource, time
import {module}
print("first line", flush=True)
moment, used = time.monotonic_ns(), resource.getrusage(resource.RUSAGE_SELF)
fd = os.open(os.environ["BENCHMARK_STEPS"], os.O_WRONLY | os.O_APPEND)
mark = {{"step": "first line", "begin": moment, "pid": os.getpid()}}
mark |= {{"cpu": used.ru_utime + used.ru_stime, "faults": used.ru_minflt}}
os.write(fd, json.dumps(mark).encode() + b"\\n")
"""


@dataclass
class _Step:
    """Samples of one step: milliseconds after the cell was sent, and what the step itself took."""

    process: str
    began: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    """The CPU time of its process between the process's first mark and this step."""
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    faults: list[float] = field(default_factory=list)


@dataclass
class _Tree:
    """One jupyter_dist in a notebook of its own."""

    name: str
    found: Notebook
    marks: Path
    flags: str
    seen: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    steps: dict[str, _Step] = field(default_factory=dict)

    def measure(self, code: str, *, counts: bool) -> None:
        self.marks.write_bytes(b"")
        sent = time.monotonic_ns()
        cell = self.found.run(f"%%distribute {self.flags} --out bench_run\n{code}", timeout_s=_LIMIT_S)
        lines = [json.loads(line) for line in self.marks.read_bytes().splitlines()]
        if counts:
            self.done.append(1e3 * (cell.done - cell.sent))
            self._take(lines, sent)

    def _take(self, lines: Sequence[Mapping[str, Any]], sent: int) -> None:
        opened: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
        first: dict[int, float] = {}
        processes = _processes(lines)
        for line in lines:
            key = line["step"], line["pid"]
            if "begin" in line:
                name = f"{processes.get(line['pid'], 'other')}: {line['step']}"
                step = self.steps.setdefault(name, _Step(processes.get(line["pid"], "other")))
                step.began.append((line["begin"] - sent) / 1e6)
                step.before.append(1e3 * (line["cpu"] - first.setdefault(line["pid"], line["cpu"])))
                opened[key].append(line)
            elif opened[key]:
                before = opened[key].pop()
                step = self.steps[f"{processes.get(line['pid'], 'other')}: {line['step']}"]
                step.wall.append((line["end"] - before["begin"]) / 1e6)
                step.cpu.append(1e3 * (line["cpu"] - before["cpu"]))
                step.faults.append(line["faults"] - before["faults"])

    def table(self) -> str:
        rows = [f"{'':>52} {'from ms':>8} {'after CPU':>9} {'wall ms':>8} {'CPU ms':>7} {'faults':>7}"]
        for name, step in sorted(self.steps.items(), key=lambda item: statistics.median(item[1].began)):
            took = [_median(values) for values in (step.wall, step.cpu, step.faults)]
            faults = took[2].partition(".")[0]
            rows.append(
                f"{name:>52} {_median(step.began):>8} {_median(step.before):>9} {took[0]:>8} {took[1]:>7} "
                f"{faults:>7}"
            )
        return f"{self.name}: {len(self.done)} rounds, cell done {_median(self.done)} ms\n" + "\n".join(rows)


def _processes(lines: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Name each process by a step that only it has."""
    own = {
        "magics.DistMagics.distribute": "kernel",
        "supervise.supervisor.supervise": "supervisor",
        "supervise.session.cell_run.CellRun.run": "supervisor",
        "processes.forking._become_rank": "rank",
        "worker.session.rank_loop._Rank._run": "rank",
    }
    found = {line["pid"]: own[line["step"]] for line in lines if line["step"] in own}
    for line in lines:
        if line["step"] == "launch.template._launch":
            found.setdefault(line["pid"], "template")
    return found


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}" if values else ""


@contextmanager
def _open(name: str, package: Path, folder: Path, module: str, *, session: bool) -> Iterator[_Tree]:
    folder.mkdir()
    marks = folder / "marks.jsonl"
    env = {
        **own_folders(folder),
        "BENCHMARK_STEPS": str(marks),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "tracing"), str(package)]),
    }
    with notebook(folder, env=env) as found:
        found.run(f"%load_ext jupyter_dist\nimport {module}", timeout_s=_LIMIT_S)
        flags = f"-np {_RANKS}"
        if session:
            found.run(f"%%distribute --session {flags}\nimport {module}", timeout_s=_LIMIT_S)
            flags = "--session"
        yield _Tree(name, found, marks, flags)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_line_steps", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="how often each is measured")
    parser.add_argument("--module", default="torch", help="what the notebook and the cell import")
    parser.add_argument("--other", type=Path, help="a folder with another jupyter_dist")
    parser.add_argument("--session", action="store_true", help="cells of ranks that stay between cells")
    given = parser.parse_args(argv)
    packages = {"this": _ROOT, **({} if given.other is None else {"other": given.other})}
    with tempfile.TemporaryDirectory(prefix="jupyter-dist-bench-") as folder, ExitStack() as stack:
        trees = [
            stack.enter_context(_open(name, package, Path(folder, name), given.module, session=given.session))
            for name, package in packages.items()
        ]
        for number in range(given.rounds + 1):
            for tree in trees:
                wait_until_idle(5.0)
                tree.measure(_CODE.format(module=given.module) + f"# {number}\n", counts=number > 0)
    for tree in trees:
        print(f"{tree.table()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
