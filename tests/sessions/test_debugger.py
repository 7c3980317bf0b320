"""Ranks of a session that wait for their user: each cell asks by itself, and the ranks keep their names."""

from __future__ import annotations

from jupyter_dist.job import State
from jupyter_dist.showing.run import Run
from tests.rigs.answering import User, waiting
from tests.rigs.launching import ended, story

from .conftest import Notebook

DETACHED = "--session --detach"


def started(notebook: Notebook, code: str, line: str = DETACHED) -> tuple[Run, User]:
    """Start a cell in which both ranks stop."""
    run = notebook.cell(code, line)
    waiting(run.folder, 2)
    return run, User(run.folder, 0, 1)


def test_a_cell_of_a_session_is_debugged_and_the_next_one_has_its_names(notebook: Notebook) -> None:
    source = "import os\nrank = int(os.environ['RANK'])\nbreakpoint()\nvalue = rank * 10"
    run, user = started(notebook, source, f"{DETACHED} -np 2")
    assert user.asks("p rank") == {0: "0\n", 1: "1\n"}
    user.say("c")
    assert ended(run.folder).state is State.SUCCEEDED, story(run.folder)
    run, user = started(notebook, "name = input('Name: ')\nvalue")
    user.say("Ada")
    assert ended(run.folder).state is State.SUCCEEDED, story(run.folder)
    assert list(run.results) == [0, 10]
    assert notebook.results("name, value") == [("Ada", 0), ("Ada", 10)]


def test_who_leaves_the_debugger_with_q_keeps_the_ranks(notebook: Notebook) -> None:
    notebook.cell("import os\nvalue = int(os.environ['RANK'])", "--session -np 2")
    run, user = started(notebook, "other = 1\nbreakpoint()\n1 / 0")
    user.say("q", [1])
    assert ended(run.folder).state is State.FAILED
    assert "BdbQuit" in str(run.status.reason)
    run, user = started(notebook, "1 / 0", f"{DETACHED} --pdb")
    assert user.asks("p value, other") == {0: "(0, 1)\n", 1: "(1, 1)\n"}
    user.say("c")
    assert ended(run.folder).state is State.FAILED
    run, _ = started(notebook, "breakpoint()\n1")
    run.stop()
    assert ended(run.folder).state is State.STOPPED
    assert notebook.results("value, other") == [(0, 1), (1, 1)]


def test_pdb_keeps_nothing_of_a_cell_that_has_ended(notebook: Notebook) -> None:
    notebook.cell("import weakref\nclass Big: pass", "--session -np 1")
    notebook.plain(
        "%%distribute --session --detach --out run\nbig = Big()\nseen = weakref.ref(big)\nbreakpoint()"
    )
    waiting(notebook.shell.user_ns["run"].folder, 1)
    notebook.plain("%dist debug --all q")
    notebook.plain("run.wait()")
    assert notebook.results("del big\nseen() is None") == [True]
