"""What works after a cell has failed, if ranks stay between cells? `python -m benchmarks.session_failures`.

The cells come in random order: fine, an error on one rank while the other waits in an all_reduce, an
interrupt, the death of a rank, the death of the kernel. After each of them comes a cell that counts in a
variable of each rank, and adds the ranks up in an all_reduce. The table shows how often it is done within two
seconds, and how often the ranks that were not killed still have their variable. If it is not done within the
limit, the contender is started again.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_dist.conformance.ports import take_port

from ._contenders import in_parallel_kernels, ours, with_engines
from ._notebook import Cell, Notebook
from ._processes import Failed

__all__ = ["main"]

_SOON_S = 2.0
_LIMIT_S = 20.0
_KINDS = {
    "fine": 0.5,
    "raises": 0.15,
    "interrupted": 0.15,
    "rank killed": 0.15,
    "kernel killed": 0.05,
}
_COUNTED = re.compile(r"@\d \d+ \d+@")
_OPEN = """
import os, time, torch, torch.distributed as td
torch.set_num_threads(1)
{init}
"""
_PEERS_INIT = """
if globals().get("port") != {port}:
    port = {port}
    if td.is_initialized(): td.destroy_process_group()
    td.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank={rank}, world_size=2)
"""
_COUNT = """
count = globals().get("count", 0) + 1
td.all_reduce(t := torch.ones(1))
print("@%d %d %d@" % ({rank}, count, int(t)), flush=True)
"""
_FAILURES = {
    "raises": "if {rank} == {culprit}: raise ValueError('planted')\ntd.all_reduce(torch.ones(1))",
    "interrupted": "if {rank} == {culprit}: time.sleep(600)\ntd.all_reduce(torch.ones(1))",
    "rank killed": "if {rank} == {culprit}: os.kill(os.getpid(), 9)\ntd.all_reduce(torch.ones(1))",
}


@dataclass(frozen=True)
class _Contender:
    name: str
    open: Callable[[Path], AbstractContextManager[Notebook]]
    magic: str
    rank: str
    """An expression for the rank's number."""
    init: str
    returns: str = ""
    """What the notebook runs after a restart of its kernel."""

    def cell(self, code: str, port: int) -> str:
        init = self.init.format(port=port, rank=self.rank)
        return f"{self.magic}{_OPEN.format(init=init)}{code}"


_CONTENDERS = (
    _Contender(
        "jupyter-dist `--session`",
        ours,
        "%%distribute --session -np 2\n",
        "int(os.environ['RANK'])",
        "import jupyter_dist; jupyter_dist.init()",
        "%load_ext jupyter_dist",
    ),
    _Contender(
        "ipyparallel `%%px`",
        lambda folder: with_engines(folder, 2, "import os"),
        "%%px\n",
        "rank_of_engine",
        _PEERS_INIT,
        "import ipyparallel as ipp\nrc = ipp.Client()\ndv = rc[:]\ndv.activate()",
    ),
    _Contender(
        "jupyter-distributed",
        lambda folder: in_parallel_kernels(folder, 2),
        "",
        "int(os.environ['RANK'])",
        _PEERS_INIT,
    ),
)


@dataclass
class _Outcome:
    seconds: list[float] = field(default_factory=list)
    never: int = 0
    kept: int = 0
    """Cells after which the ranks that were not killed had their variable."""

    def text(self) -> str:
        total = len(self.seconds) + self.never
        if not total:
            return "–"
        soon = sum(seconds <= _SOON_S for seconds in self.seconds)
        return f"{soon} of {total}, values of {self.kept}"


class _Trial:
    """One contender and the sequence of cells."""

    def __init__(self, contender: _Contender, folder: Path) -> None:
        self._contender, self._folder = contender, folder
        self._stack = contextlib.ExitStack()
        self._starts = 0
        self.outcomes: dict[str, _Outcome] = defaultdict(_Outcome)

    def start(self) -> None:
        self._stack.close()
        self._starts += 1
        self._notebook = self._stack.enter_context(self._contender.open(self._folder / str(self._starts)))
        if "rank_of_engine" in self._contender.rank:
            self._notebook.run("dv.scatter('rank_of_engine', range(2), flatten=True)", timeout_s=60)
        self._port = take_port()
        self._expected = {0: 0, 1: 0}
        self._count(60)

    def close(self) -> None:
        self._stack.close()

    def _run(self, code: str, timeout_s: float) -> Cell:
        code = code.replace("{rank}", self._contender.rank)
        text = self._contender.cell(code, self._port)
        return self._notebook.run(text, timeout_s=timeout_s, watch=_COUNTED, fails=True)

    def _count(self, timeout_s: float) -> dict[int, int]:
        """Run the cell that counts. Returns what each rank has counted. Raises Failed."""
        cell = self._run(_COUNT, timeout_s)
        shown = [match.split("@")[1].split() for match in cell.seen]
        found = {int(rank): (int(count), int(total)) for rank, count, total in shown}
        if [total for _, total in found.values()] != [2, 2]:
            raise Failed(f"the cell failed: {cell.text[-300:]}")
        self._expected = {rank: count for rank, (count, _) in found.items()}
        return self._expected

    def step(self, kind: str, culprit: int) -> None:
        before = dict(self._expected)
        lost = {culprit} if kind == "rank killed" else set()
        try:
            self._fail(kind, culprit)
            if kind not in ("fine", "kernel killed"):
                self._port = take_port()  # peers open a new process group
            began = time.monotonic()
            now = self._count(_LIMIT_S)
        except Failed as error:
            print(f"  {kind}: {error}", file=sys.stderr, flush=True)
            self.outcomes[kind].never += 1
            self.start()
            return
        outcome = self.outcomes[kind]
        outcome.seconds.append(time.monotonic() - began)
        outcome.kept += all(now[rank] == before[rank] + 1 for rank in before.keys() - lost)

    def _fail(self, kind: str, culprit: int) -> None:
        if kind == "kernel killed":
            self._notebook.kill_kernel()
            if self._contender.returns:
                self._notebook.run(self._contender.returns, timeout_s=60)
        elif kind != "fine":
            code = _FAILURES[kind].replace("{culprit}", str(culprit))
            timer = threading.Timer(1.0, self._notebook.interrupt)
            if kind == "interrupted":
                timer.start()
            try:
                self._run(code, _LIMIT_S)
            finally:
                timer.cancel()


def _sequence(cells: int, seed: int) -> Iterator[tuple[str, int]]:
    dice = random.Random(seed)
    for kind in dice.choices(list(_KINDS), list(_KINDS.values()), k=cells):
        yield kind, dice.randrange(2)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.session_failures", description=__doc__)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--contender", help="this one alone, by a part of its name")
    options = parser.parse_args(argv)
    tried = [each for each in _CONTENDERS if options.contender in (None, *each.name.split())]
    tables = []
    for contender in tried:
        with tempfile.TemporaryDirectory(prefix="jd-cells-", ignore_cleanup_errors=True) as folder:
            trial = _Trial(contender, Path(folder))
            try:
                trial.start()
                for kind, culprit in _sequence(options.cells, options.seed):
                    trial.step(kind, culprit)
            finally:
                trial.close()
            tables.append(trial.outcomes)
    print(f"| the cell before | {' | '.join(each.name for each in tried)} |")
    print("| --- |" + " --- |" * len(tried))
    for kind in _KINDS:
        print(f"| {kind} | {' | '.join(outcomes[kind].text() for outcomes in tables)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
