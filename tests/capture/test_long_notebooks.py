"""Captures in a kernel that has run more cells than a cache of a usual size keeps."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_dist.capture import notebook_history
from jupyter_dist.capture.payload_builder import Payload
from tests.rigs.notebook_cells import Notebook

_CELLS = 2000
_CACHED = type(functools.cache(len))


@pytest.fixture
def long(notebook: Notebook) -> Notebook:
    """A notebook whose cells seed, register, set attributes of a module, and run other magics."""
    notebook.cell("import random, math\nrandom.seed(3)\nmath.tau = 6")
    kinds = (
        "random.seed({0})",
        "math.tau = {0}",
        "x = {0}",
        "get_ipython().run_cell_magic('time', '', 'y = {0}\\n')",
        "get_ipython().run_cell_magic('distribute', '', 'z = {0}\\n')",
        "copyreg.pickle(int, {0})",
    )
    texts = [kinds[number % len(kinds)].format(number) for number in range(_CELLS)]
    notebook.names["In"] = ["", *texts, "the cell that runs"]
    return notebook


def _misses() -> int:
    """Return how often a cached function of the capture had to compute its result."""
    modules = [
        module for name, module in list(sys.modules.items()) if name.startswith("jupyter_dist.capture")
    ]
    functions = {value for module in modules for value in vars(module).values() if type(value) is _CACHED}
    return sum(function.cache_info().misses for function in functions)


def _capture(notebook: Notebook, number: int) -> Payload:
    notebook.names["In"].append(f"print({number})")
    return notebook.capture(f"random.random(), math.tau, {number}")


def test_a_capture_reads_only_cells_that_are_new(long: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _capture(long, 0)
    read: list[str] = []
    run_here: Callable[[str], str] = vars(notebook_history)["_run_here"]

    def counted(cell: str) -> str:
        read.append(cell)
        return run_here(cell)

    monkeypatch.setattr(notebook_history, "_run_here", counted)
    before = _misses()
    second = _capture(long, 1)
    assert read == ["print(1)"]
    assert _misses() - before < 20
    seeds = [captured.header["settings"]["seeds"]["random"] for captured in (first, second)]
    assert seeds[0] == seeds[1]
    assert seeds[0][1]  # a cell has seeded it


def test_a_history_that_was_cleared_is_read_anew(long: Notebook) -> None:
    cells: list[Any] = long.names["In"]
    assert len(notebook_history.texts(long.names)) == 1 + _CELLS - _CELLS // 6
    cells[:] = ["", "a = 1", "get_ipython().run_cell_magic('time', '', 'b = 2')", 7]
    assert notebook_history.texts(long.names) == ("a = 1", "b = 2")
    cells += ["c = 3", "d = 4"]
    found = [(cell.number, cell.text, cell.lines_before) for cell in notebook_history.cells(long.names)]
    assert found == [(1, "a = 1", 0), (2, "b = 2", 1), (4, "c = 3", 0), (5, "d = 4", 0)]
