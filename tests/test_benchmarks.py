"""The benchmarks run, our side of them, small and once; and what they count is counted right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import missing

from benchmarks import lines
from benchmarks.__main__ import _BENCHMARKS, _README
from benchmarks._processes import Failed
from benchmarks._race import Benchmark, Column, Contender, Measure, race, table

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "jupyter_dist" / "labextension" / "package.json"
TEXT = "the quick brown fox jumps over the lazy dog"


@pytest.mark.needs("numpy")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs("torch", "horovod", "mpi4py"))
        if name == "launchers"
        else name
        for name in _BENCHMARKS
    ],
)
def test_our_side_of_a_benchmark_runs(name: str) -> None:
    if name == "hosts" and (lacking := missing()):
        pytest.skip(lacking)
    if name.startswith("browser-"):
        if not BUILT.exists():
            pytest.skip("needs the built front-end: make .venv/.js")
        if not (os.environ.get("CHROMIUM") or shutil.which("chromium")):
            pytest.skip("needs Chromium: apt-get install chromium, or set CHROMIUM to its path")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--quick", "--ours"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
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
