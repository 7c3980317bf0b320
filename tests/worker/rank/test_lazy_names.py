"""Names that a cell does not name, and results that cannot be unpickled, in runs with real ranks."""

from __future__ import annotations

import pickle
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.showing import failure_report, summary
from jupyter_dist.showing.run import Run
from tests.rigs.launching import ended, launch_cell, results, story

pytestmark = pytest.mark.usefixtures("warm")

Cells = Callable[[str], dict[str, Any]]

DEFINITIONS = """
import dataclasses
def halve(x): return x / 2
@dataclasses.dataclass
class Row:
    x: int = 1
    def half(self): return halve(self.x)
held = (i for i in range(3))
def bad(f=held): return f
size = 5
"""


@pytest.fixture
def cells(own_folders: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cells:
    """Run cells as a notebook does, and return its names."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.chdir(tmp_path)

    def run(source: str) -> dict[str, Any]:
        exec(compile(textwrap.dedent(source), "/tmp/ipykernel_1/1.py", "exec"), main.__dict__)
        return main.__dict__

    return run


def run(source: str, names: dict[str, Any], np: int = 2) -> tuple[RunFolder, State]:
    folder = launch_cell("local", textwrap.dedent(source), np, names=names)
    return folder, ended(folder).state


def test_a_pickle_file_names_them(cells: Cells) -> None:
    names = cells(DEFINITIONS)
    Path("row.pkl").write_bytes(pickle.dumps(names["Row"](7)))
    folder, state = run("import pickle\nrow = pickle.load(open('row.pkl', 'rb'))\nrow, row.half()", names)
    assert state is State.SUCCEEDED, story(folder)
    assert results(folder, 2) == [(names["Row"](7), 3.5)] * 2
    assert type(results(folder, 2)[0][0]) is names["Row"]


def test_a_process_that_is_spawned_has_them(cells: Cells) -> None:
    names = cells(DEFINITIONS)
    Path("row.pkl").write_bytes(pickle.dumps(names["Row"](7)))
    cell = """
    import multiprocessing, pickle
    def load(path):
        with open(path, "rb") as file:
            return pickle.load(file).half()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(load, ["row.pkl"])
    found
    """
    folder, state = run(cell, names, 1)
    assert state is State.SUCCEEDED, story(folder)
    assert results(folder, 1) == [[3.5]]


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ("globals()['ezis'[::-1]]", "size is in the notebook, but this cell does not name it. Write size on"),
        ("eval('ezis'[::-1])", "size is in the notebook, but this cell does not name it. Write size on"),
        (
            "import pickle\npickle.loads(b'c__main__\\nbad\\n.')",
            "bad is in the notebook, but this cell does not name it, and it was left out (it cannot",
        ),
        ("import pickle\npickle.loads(b'c__main__\\nNet\\n.')", "'Net' is not in the notebook"),
    ],
)
def test_the_hint_says_what_to_write(cells: Cells, cell: str, hint: str) -> None:
    folder, state = run(cell, cells(DEFINITIONS), 1)
    assert state is State.FAILED
    assert hint in failure_report.failure(folder)


BROKEN = """
class Endless:
    def __init__(self, inner): self.inner = inner
    def __setstate__(self, state): self.__setstate__(state)
class Refuses:
    def __setstate__(self, state): raise OSError("no licence here")
refuses = Refuses()
refuses.x = 1
"""


@pytest.mark.parametrize(
    ("made", "why"), [("Endless([])", "RecursionError"), ("refuse()", "OSError: no licence")]
)
def test_a_result_that_cannot_be_unpickled_is_in_the_table(cells: Cells, made: str, why: str) -> None:
    cell = f"""
    import jupyter_dist as dist
    def refuse():
        made = Refuses()
        made.x = 1
        return made
    {made} if dist.rank() == 1 else 5
    """
    names = cells(BROKEN)
    del names["refuses"]
    folder, state = run(cell, names)
    assert state is State.SUCCEEDED, story(folder)
    text = summary.gather(folder).text()
    assert f"cannot be unpickled: {why}" in text
    first, second = Run(folder).results
    assert first == 5
    assert why in repr(second)
