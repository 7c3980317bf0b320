"""The benchmarks run, our side of them, small and once; and what they count is counted right."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import lines, schedulers
from benchmarks.__main__ import _BENCHMARKS, _README
from benchmarks._notebook import Cell
from benchmarks._processes import Failed
from benchmarks._race import Benchmark, Column, Contender, Measure, race, table
from jupyter_dist.conformance.deadlines import run_process
from tests.rigs.hosts import missing

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "jupyter_dist" / "labextension" / "package.json"
TEXT = "the quick brown fox jumps over the lazy dog"


def _runs() -> list[Any]:
    """Each benchmark once. One that starts three launchers is a test each."""
    # These start an engine each, as other tests of the three backends do.
    names = [[name] for name in _BENCHMARKS if name not in ("ray", "spark", "kubernetes", "launchers")]
    engines = {"horovodrun": "horovod", "torchrun": "torch", "mpirun": "mpi4py"}
    return [pytest.param(name, id=name[0]) for name in names] + [
        pytest.param(
            ["launchers", "--contender", contender],
            id=contender,
            marks=pytest.mark.needs("torch", engine),
        )
        for contender, engine in engines.items()
    ]


@pytest.mark.needs("numpy")
@pytest.mark.parametrize("argv", _runs())
def test_our_side_of_a_benchmark_runs(argv: list[str]) -> None:
    name = argv[0]
    if name == "hosts" and (lacking := missing()):
        pytest.skip(lacking)
    if name.startswith("browser-"):
        if not BUILT.exists():
            pytest.skip("needs the built front-end: make .venv/.js")
        if not (os.environ.get("CHROMIUM") or shutil.which("chromium")):
            pytest.skip("needs Chromium: apt-get install chromium, or set CHROMIUM to its path")
    done = run_process(
        [sys.executable, "-m", "benchmarks", *argv, "--quick", "--ours"],
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| **")]
    assert rows, done.stdout
    assert all(cell.strip() for row in rows for cell in row.strip("|").split("|")), done.stdout


def test_readme_has_the_place_of_every_table() -> None:
    text = _README.read_text()
    for name in _BENCHMARKS:
        assert text.count(f"<!-- {name} -->") == text.count(f"<!-- end of {name} -->") == 1


def test_lost_torn_and_turned_lines_are_counted() -> None:
    whole = "".join(f"7 {i} {TEXT}\n" for i in range(5))
    other = f"@@8 1.5@@\n8 0 {TEXT}\n8 2 {TEXT}\n8 1 {TEXT}\n8 3 the qui\n@@8 2.5@@\n"
    found = lines.check([f"@@7 1.0@@\n{whole}@@7 2.0@@\n", other], 5)
    assert found == {"begin": 1.0, "end": 2.5, "lost": 2, "torn": 1, "turned": 1}


class NotebookWithRanks:
    """What a notebook says when four ranks print, one of them not to the end, or when rank 1 dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.codes: list[str] = []

    def run(self, code: str, *, watch: re.Pattern[str], **_: object) -> Cell:
        self.codes.append(code)
        cell = Cell(sent=100.0, done=130.0)
        if "sleep(5" in code:
            cell.text = f"(pid=7) 3 4 {TEXT}\n"
            return cell
        for rank in range(4):
            (self.folder / "marks" / f"first-{rank}").write_text(str(110 + rank))
            (self.folder / "marks" / f"last-{rank}").write_text(str(120 + rank))
            cell.seen[f"@@first {rank}@@"] = 111.0 + rank
            cell.text += "".join(f"(pid=7) {rank} {i} {TEXT}\n" for i in range(4 if rank == 3 else 5))
        if "SIGKILL" in code.rpartition("all_reduce")[0]:
            (self.folder / "marks" / "died-1").write_text("121.0")
            cell.seen = {"died": 120.5, "SIGKILL": 121.5, "dead": 123.0}
        return cell


def test_what_four_ranks_print_and_how_they_die_is_measured_right(tmp_path: Path) -> None:
    found: Any = NotebookWithRanks(tmp_path)
    printed = schedulers._printing(found, lambda code: f"call\n{code}", 6, whole=False)
    # Of 24 lines 19 are in the cell, and one came late.
    assert printed == {"first": 13.0, "seen": 14.0, "lost": 4, "printed": 7.0}
    died = schedulers._dying(found, str, schedulers._KILL, schedulers._KILLED, "killed")
    assert died == {"killed": 0.5, "killed end": 9.0}, "what was said before it died does not tell of it"
    for code in found.codes:
        compile(code, "cell", "exec")


def test_a_contender_that_fails_is_shown_and_the_others_go_on(tmp_path: Path) -> None:
    def taking(seconds: list[float]) -> Contender:
        @contextmanager
        def opened(folder: Path) -> Iterator[Measure]:
            rest = iter(seconds)

            def measure() -> dict[str, float]:
                value = next(rest, None)
                if value is None:
                    raise Failed("not done within 60 s")
                return {"s": value}

            yield measure

        return Contender(f"takes {seconds[0]:g}", opened, ours=seconds[0] == 1)

    benchmark = Benchmark(
        name="example",
        title="Example",
        contenders=[taking([1, 1, 3, 2]), taking([40, 40])],
        columns=[Column("s", "seconds", lambda s: f"{s:g}")],
        headline="s",
        rounds=3,
        packages=[],
    )
    results = race(benchmark, tmp_path)
    assert [len(result.samples) for result in results] == [3, 1]
    text = table(benchmark, results)
    assert "2 (1 – 3)" in text
    assert "20 ×" in text
    assert "takes 40 failed, with 1 of its measurements done: not done within 60 s." in text
