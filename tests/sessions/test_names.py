"""Whose a name is: the notebook's, or the ranks'."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture.payload_builder import Payload
from jupyter_dist.folder import RunFolder
from jupyter_dist.launch import submission
from jupyter_dist.record import reader
from jupyter_dist.record.sessions import session_folder
from jupyter_dist.worker.session import place

from .conftest import Notebook

PRELOADED = ["numpy"]
pytestmark = pytest.mark.usefixtures("warm")

TAKEN = "The cell uses the ranks' value"
DIES = "import os\nif os.environ['RANK'] == '{rank}': os._exit(3)"


def test_a_cell_finds_what_an_earlier_cell_has_made(notebook: Notebook) -> None:
    assert notebook.results("import os\nheld = [int(os.environ['RANK'])]\nheld", "--session -np 2") == [
        [0],
        [1],
    ]
    assert notebook.results("held.append(7); held") == [[0, 7], [1, 7]]
    assert notebook.results("held is held, len(held)") == [(True, 2)] * 2


def test_a_name_of_the_notebook_is_sent_once_and_again_after_a_change(notebook: Notebook) -> None:
    notebook.plain("import numpy as np; big = np.ones(1_000_000); small = 1")
    first = notebook.cell("big.sum() + small", "--session -np 2")
    assert (list(first.results), first.job.payload_bytes > 8_000_000) == ([1_000_001.0] * 2, True)
    again = notebook.cell("big.sum() + small")
    assert (list(again.results), again.job.payload_bytes < 10_000) == ([1_000_001.0] * 2, True)
    notebook.plain("small = 2")
    other = notebook.cell("big.sum() + small")
    assert (list(other.results), other.job.payload_bytes < 10_000) == ([1_000_002.0] * 2, True)
    notebook.plain("big[0] = 3")  # in place
    assert notebook.results("big.sum() + small") == [1_000_004.0] * 2
    notebook.plain("other = np.ones(3)")
    last = notebook.cell("other.sum() + big[0]")
    assert (list(last.results), last.job.payload_bytes < 10_000) == ([6.0, 6.0], True)


def test_a_mapped_file_is_the_same_for_the_notebook_and_the_ranks(notebook: Notebook) -> None:
    notebook.plain("import numpy as np; shared = np.memmap('data', np.float64, 'w+', shape=(1_000_000,))")
    first = notebook.cell("shared.sum()", "--session -np 1")
    assert (list(first.results), first.job.payload_bytes < 10_000) == ([0.0], True)
    notebook.plain("shared[0] = 1")
    assert notebook.results("shared[1] = 2; shared.sum()") == [3.0]
    assert notebook.plain("shared.sum()") == 3.0
    run = notebook.cell("float(shared[1])")
    assert (list(run.results), TAKEN in notebook.printed + run.log()) == ([2.0], False)
    notebook.plain("shared = np.memmap('other', np.float64, 'w+', shape=(5,))")
    assert notebook.results("len(shared)") == [5]


def test_functions_and_classes_of_the_notebook_arrive_defined_anew(notebook: Notebook) -> None:
    notebook.plain("factor = 2\ndef f(x): return g(x) * factor\ndef g(x): return x + 1")
    assert notebook.results("f(1)", "--session -np 2") == [4, 4]
    notebook.plain("def g(x): return x + 10")
    assert notebook.results("f(1)") == [22, 22]
    notebook.plain("factor = 3")
    assert notebook.results("f(1)") == [33, 33]
    notebook.plain("class Net:\n    def name(self): return 'old'")
    assert notebook.results("net = Net(); net.name()") == ["old", "old"]
    notebook.plain("class Net:\n    def name(self): return 'new'\n    def more(self): return 1")
    assert notebook.results("Net().name(), net.name()") == [("new", "old")] * 2


def test_a_class_or_function_that_use_has_changed_arrives_defined_anew(notebook: Notebook) -> None:
    notebook.plain("class N:\n    made = 0\n    def f(self): return 1\ndef g(): return 1")
    notebook.cell(
        "import copy; copy.deepcopy(N()); N.made += 1; g.calls = 1; (N().f(), g())", "--session -np 1"
    )
    notebook.plain("class N:\n    made = 0\n    def f(self): return 2\ndef g(): return 2")
    run = notebook.cell("N().f(), g()")
    assert list(run.results) == [(2, 2)]
    assert TAKEN not in notebook.printed + run.log()


def test_a_class_stays_as_it_is_after_the_notebook_has_pickled_an_object(notebook: Notebook) -> None:
    notebook.plain("class N: made = 0")
    notebook.cell("held = N(); N.made += 1", "--session -np 1")
    notebook.plain("import pickle; pickle.dumps(N())")
    assert notebook.results("isinstance(held, N), N.made") == [(True, 1)]


def test_an_error_says_that_an_object_is_of_an_old_class(notebook: Notebook) -> None:
    notebook.plain("class Net: pass")
    notebook.cell("net = Net()", "--session -np 2")
    notebook.plain("class Net:\n    def more(self): return 1")
    error = notebook.fails("net.more()")
    assert "AttributeError" in str(error)
    assert "net is an object of an earlier definition of Net" in str(error)
    error = notebook.fails("Net().none()")
    assert "earlier definition" not in str(error)


def test_a_name_that_a_cell_has_assigned_belongs_to_the_ranks(notebook: Notebook) -> None:
    notebook.plain("lr = 1")
    assert notebook.results("lr = lr + 1; lr", "--session -np 2") == [2, 2]
    assert notebook.results("lr") == [2, 2]
    line = 'jupyter_dist.session("main")["lr"] = lr'
    assert line not in notebook.printed  # the notebook has not assigned it since
    notebook.plain("lr = 50")
    assert notebook.results("lr") == [2, 2]
    assert notebook.printed.count(line) == 1
    assert notebook.results("lr") == [2, 2]
    assert line not in notebook.printed  # one note for one change
    notebook.plain(f"import jupyter_dist\n{line}")
    assert notebook.results("lr") == [50, 50]
    assert "note:" not in notebook.printed


def of_notebook(notebook: Notebook, path: str, code: str) -> None:
    """Let the next cells be those of the notebook with this path, after this code of its own."""
    notebook.plain(f"__vsc_ipynb_file__ = {path!r}\n{code}")


def test_each_cell_uses_the_values_of_its_own_notebook(notebook: Notebook) -> None:
    of_notebook(notebook, "a.ipynb", "lr = 1\ndef f(): return lr")
    assert notebook.results("import time, pathlib; f()", "--session -np 1") == [1]
    of_notebook(notebook, "b.ipynb", "lr = 2")
    assert notebook.results("f(), lr") == [(2, 2)]
    of_notebook(notebook, "a.ipynb", "lr = 1")
    assert notebook.results("f(), lr") == [(1, 1)]
    gate = Path("gate").absolute()
    of_notebook(notebook, "b.ipynb", "lr = 2")
    waits = f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\nlr"
    first = notebook.cell(waits, "--session --detach")
    of_notebook(notebook, "a.ipynb", "lr = 1")
    second = notebook.cell("lr", "--session --detach")
    gate.touch()
    assert list(first.wait().results) == [2]
    assert list(second.wait().results) == [1], "the cell before it has replaced the value of its notebook"


def test_each_notebook_gets_one_note_on_its_own_change(notebook: Notebook) -> None:
    of_notebook(notebook, "a.ipynb", "lr = 1; seen = [1]")
    notebook.cell("lr = lr + 1; seen.append(2)", "--session -np 1")
    for path, value, notes in (("b", 60, 2), ("a", 1, 0), ("b", 60, 0), ("a", 50, 1), ("b", 60, 0)):
        code = "seen = ['b']" if path == "b" else "seen = [1]"
        of_notebook(notebook, f"{path}.ipynb", f"lr = {value}; {code}")
        run = notebook.cell("lr, seen")
        assert list(run.results) == [(2, [1, 2])]
        assert (notebook.printed + run.log()).count(TAKEN) == notes, (path, value)


def test_an_assignment_that_has_not_run_leaves_the_name_to_the_notebook(notebook: Notebook) -> None:
    notebook.plain("bs = 8; x = 1; same = 3; both = 4")
    notebook.fails("1 / 0\nbs = bs * 2", "--session -np 1")
    notebook.cell("if False: x = 5\nfor x in []: pass\nwith open('/dev/null') as f: same, *_ = [3]\nboth")
    notebook.plain("bs = 16; x = 2; same = 30; both = 40")
    run = notebook.cell("bs, x, both")
    assert list(run.results) == [(16, 2, 40)]
    assert TAKEN not in notebook.printed + run.log()
    assert notebook.results("same") == [3]
    notebook.fails("bs = 5\n1 / 0")
    assert notebook.results("bs") == [5]


def test_a_value_that_the_ranks_have_changed_in_place_wins(notebook: Notebook) -> None:
    notebook.plain("seen = [1]")
    assert notebook.results("seen.append(2); seen", "--session -np 2") == [[1, 2]] * 2
    notebook.plain("seen = ['new']")
    run = notebook.cell("seen")
    assert list(run.results) == [[1, 2]] * 2
    assert 'jupyter_dist.session("main")["seen"] = seen' in notebook.printed + run.log()
    run = notebook.cell("seen")
    assert TAKEN not in notebook.printed + run.log()  # one note for one change


def test_one_rank_that_has_changed_a_value_keeps_it_on_all(notebook: Notebook) -> None:
    notebook.plain("seen = [1]")
    notebook.cell("import os\nif os.environ['RANK'] == '1': seen.append(2)", "--session -np 2")
    notebook.plain("seen = ['new']")
    assert notebook.results("seen") == [[1], [1, 2]]


def test_ranks_keep_what_they_have_changed_if_another_rank_lacks_the_name(notebook: Notebook) -> None:
    notebook.plain("seen = [1]")
    notebook.cell("seen.append(2)", "--session -np 2")
    notebook.fails(DIES.format(rank=1))
    assert notebook.results("seen") == [[1, 2], [1]]
    notebook.plain("other = [1]")
    notebook.cell("other.append(2)", "--session --ranks 0")
    assert notebook.results("other") == [[1, 2], [1]]
    assert TAKEN not in notebook.printed


def test_a_fresh_rank_says_what_the_notebook_does_not_send_again(notebook: Notebook) -> None:
    notebook.plain("lr = 0.5; seen = [1]\ndef f(): return lr\nclass N: pass")
    notebook.cell("import os; held = N(); seen.append(f())", "--session -np 1")
    notebook.fails(DIES.format(rank=0))
    assert notebook.results("lr, seen") == [(0.5, [1])]
    assert "Gone with the earlier one: held, os, seen. Run the cells" in notebook.printed


def test_a_cell_in_the_queue_does_not_run_without_the_notebooks_names(notebook: Notebook) -> None:
    notebook.plain("lr = 0.5; word = 'sent'")
    notebook.cell("import time, pathlib; word, lr", "--session -np 2")
    gate = Path("gate").absolute()
    waits = f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n"
    notebook.cell(waits + DIES.format(rank=1), "--session --detach")
    second = notebook.cell("print('ran')\nlr", "--session --detach")
    third = notebook.cell("1", "--session --detach")
    gate.touch()
    assert second.wait().state == "failed"
    assert "rank 1 was replaced while this cell waited" in str(reader.status(second.folder).reason)
    assert "ran" not in second.log(0)
    assert list(third.wait().results) == [1, 1]
    assert notebook.results("lr") == [0.5, 0.5]
    gate.unlink()
    notebook.cell(waits + "del lr", "--session --ranks 0 --detach")
    last = notebook.cell("lr", "--session --detach")
    gate.touch()
    assert last.wait().state == "failed"
    assert "rank 0 lost lr while this cell waited" in str(reader.status(last.folder).reason)
    assert notebook.results("lr") == [0.5, 0.5]


def test_shared_objects_stay_shared_if_another_rank_lacks_them(notebook: Notebook) -> None:
    notebook.plain("weights = [1.0]; model = {'w': weights}; optimizer = {'of': weights, 'lr': 1}")
    code = "optimizer['of'] is model['w'], model['w'], optimizer['lr']"
    notebook.cell("held = model; optimizer['lr']; model['w'].append(2.0)", "--session -np 2")
    notebook.fails(DIES.format(rank=1))
    assert notebook.results(code) == [(True, [1.0, 2.0], 1), (True, [1.0], 1)]
    assert notebook.results("held is model", "--session --ranks 0")[0] is True
    notebook.fails(DIES.format(rank=1))
    notebook.plain("optimizer['lr'] = 2")
    assert notebook.results(code) == [(True, [1.0, 2.0], 1), (True, [1.0], 2)]


def test_the_arguments_are_the_notebooks_until_a_cell_changes_them(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    assert notebook.results("import sys; sys.argv", "--session -np 1") == [["<In[1]>"]]
    notebook.plain("import sys; sys.argv = ['train.py', '--lr', '3']")
    assert notebook.results("sys.argv") == [["train.py", "--lr", "3"]]
    notebook.cell("sys.argv = ['own.py', '--lr', '4']")
    assert notebook.results("sys.argv") == [["own.py", "--lr", "4"]]
    notebook.plain("sys.argv[2] = '5'")
    assert notebook.results("sys.argv") == [["train.py", "--lr", "5"]]


def test_ranks_follow_the_notebooks_environment_and_directory(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the ranks of a run without a session, which inherit both."""
    for name in ("PLANTED_BEFORE", "PLANTED_AFTER", "PLANTED_FLAG", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")  # so that it is undone
        monkeypatch.delenv(name)
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    (tmp_path / "data").mkdir()
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)
    look = (
        "import os\nfrom pathlib import Path\n"
        "os.environ.get('PLANTED_BEFORE'), os.environ.get('PLANTED_AFTER'), Path.cwd().name"
    )
    notebook.plain("import os; os.environ.update(PLANTED_BEFORE='a', PLANTED_FLAG='notebook')")
    home = tmp_path.name
    assert notebook.results(look, "--session -np 2 --env PLANTED_FLAG=ranks") == [("a", None, home)] * 2
    notebook.plain("os.environ.update(PLANTED_AFTER='b', CUDA_VISIBLE_DEVICES='7'); os.chdir('data')")
    assert notebook.results(look, "--session --ranks 0")[0] == ("a", "b", "data")
    assert notebook.results("os.environ.get('CUDA_VISIBLE_DEVICES') == '7'") == [False] * 2
    assert notebook.results("os.environ['PLANTED_FLAG'], os.environ['MPLBACKEND']") == [("ranks", "Agg")] * 2
    # What a cell changes stays, until the notebook changes it, too.
    notebook.cell("os.environ['PLANTED_AFTER'] = 'rank'; os.chdir('../own')")
    assert notebook.results(look) == [("a", "rank", "own")] * 2
    notebook.fails(DIES.format(rank=1))
    notebook.plain(f"os.environ['PLANTED_BEFORE'] = 'c'; os.chdir({str(tmp_path)!r})")
    assert notebook.results(look) == [("c", "rank", home), ("c", "b", home)]  # rank 1 is a fresh process
    notebook.plain("os.environ['PLANTED_BEFORE'] = 'a'")
    assert [before for before, *_ in notebook.results(look)] == ["a", "a"]


def test_a_module_that_both_have_imported_needs_no_note(notebook: Notebook) -> None:
    notebook.cell("import math as m", "--session -np 1")
    notebook.plain("import math as m")
    assert notebook.results("m.__name__") == ["math"]
    assert "have assigned" not in notebook.printed
    notebook.plain("import cmath as m")
    assert notebook.results("m.__name__") == ["math"]
    assert "have assigned" in notebook.printed


def test_a_deleted_name_comes_from_the_notebook_again(notebook: Notebook) -> None:
    notebook.plain("word = 'notebook'")
    assert notebook.results("word = 'rank'; word", "--session -np 2") == ["rank", "rank"]
    assert notebook.results("del word\n'word' in globals()") == [False, False]
    assert notebook.results("word") == ["notebook", "notebook"]


def test_a_notebook_that_knows_only_earlier_names_asks_for_the_present_ones(notebook: Notebook) -> None:
    notebook.plain("lr = 1")
    notebook.cell("1", "--session -np 1")
    file = session_folder("main") / place.NAMES
    before = file.read_bytes()
    assert notebook.results("lr") == [1]
    notebook.cell("lr = 5")
    file.write_bytes(before)  # as if a full disk had kept the session from writing it
    run = notebook.cell("lr")
    assert list(run.results) == [5]
    assert run.job.session is not None
    assert run.job.session["owned"] == ["lr"]  # by the earlier names, the notebook's value would travel
    file.unlink()
    assert notebook.results("lr") == [5]


def test_a_payload_is_written_once_if_the_notebook_knows_only_earlier_names(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.plain("import numpy as np; big = np.ones(1_000_000)")
    notebook.cell("1", "--session -np 1")
    file = session_folder("main") / place.NAMES
    before = file.read_bytes()
    notebook.cell("lr = 5")
    file.write_bytes(before)
    write, written = Payload.write, []

    def note(payload: Payload, path: Path) -> None:
        written.append(payload.nbytes)
        write(payload, path)

    monkeypatch.setattr(Payload, "write", note)
    assert notebook.results("big.sum()") == [1_000_000.0]
    assert [size > 8_000_000 for size in written] == [True]


def test_a_cell_uses_its_notebooks_value_if_another_cell_arrives_while_it_is_prepared(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_notebook(notebook, "a.ipynb", "lr = 1")
    notebook.cell("lr", "--session -np 2")
    launch, space = submission.launch, notebook.shell.user_ns

    def after_another(*arguments: Any) -> RunFolder:
        monkeypatch.setattr(submission, "launch", launch)
        space.update(__vsc_ipynb_file__="b.ipynb", lr=2)
        other = notebook.shell.run_cell_magic("distribute", "--session", "lr")
        assert list(other.results) == [2, 2]
        space.update(__vsc_ipynb_file__="a.ipynb", lr=1)
        return launch(*arguments)

    for how in ("file", "question", "some ranks"):
        if how == "question":
            (session_folder("main") / place.NAMES).unlink()
        monkeypatch.setattr(submission, "launch", after_another)
        line = "--session --ranks 0" if how == "some ranks" else "--session"
        assert notebook.results("lr", line)[0] == 1, how


def test_no_garbage_is_collected_while_a_cell_is_sent(notebook: Notebook) -> None:
    notebook.plain(
        "import gc\n"
        "class Looks:\n"
        "    def __reduce__(self): seen.append(gc.isenabled()); return int, ()\n"
        "seen, looks = [], Looks()"
    )
    notebook.cell("pass", "--session -np 1")
    try:
        for on in (True, False):
            (gc.enable if on else gc.disable)()
            assert notebook.results("looks") == [0]
            assert gc.isenabled() is on
    finally:
        gc.enable()
    assert set(notebook.shell.user_ns["seen"]) == {False}


def test_what_a_cell_imports_and_defines_stays(notebook: Notebook) -> None:
    notebook.cell("import math as m\ndef area(r): return m.pi * r\nclass Kept: size = 3", "--session -np 1")
    assert notebook.results("round(area(2), 2), Kept.size, m.floor(1.5)") == [(6.28, 3, 1)]


def test_a_function_sees_the_ranks_value_of_a_global_name(notebook: Notebook) -> None:
    notebook.plain("scale = 1\ndef f(): return scale")
    assert notebook.results("scale = 5; f()", "--session -np 1") == [5]
    notebook.plain("def f(): return scale + 1")
    assert notebook.results("f()") == [6]


def test_code_that_a_cell_has_defined_uses_the_notebooks_present_values(notebook: Notebook) -> None:
    notebook.plain("lr = 0.1; rate = 1")
    notebook.cell(
        "def g(): return lr\ndef later(): return helper()\n"
        "class Trainer:\n    def step(self): return rate\ntr = Trainer()\ng(), tr.step()",
        "--session -np 2",
    )
    notebook.plain("lr = 0.2; rate = 2\ndef helper(): return lr + rate")
    assert notebook.results("g()") == [0.2, 0.2]
    assert notebook.results("tr.step()") == [2, 2]
    assert notebook.results("later()") == [2.2, 2.2]
    notebook.plain("lr = 0.3\ndef call(): return g()\nimport jupyter_dist")
    assert list(notebook.plain("jupyter_dist.session().run(call).results")) == [0.3, 0.3]


def test_the_random_state_is_the_ranks_after_the_first_cell(notebook: Notebook) -> None:
    notebook.plain("import random; random.seed(1)")
    first = notebook.results("random.random()", "--session -np 1")
    second = notebook.results("random.random()")
    third = notebook.results("random.random()")
    assert len({*first, *second, *third}) == 3


def test_variables_and_the_working_directory_stay_as_in_a_notebook(notebook: Notebook) -> None:
    notebook.cell(
        "import os\nos.environ['MINE'] = 'x'\nos.mkdir('deep'); os.chdir('deep')", "--session -np 1"
    )
    first = notebook.cell(
        "(os.environ['MINE'], os.path.basename(os.getcwd()), os.environ['JUPYTER_DIST_RUN_ID'])"
    )
    assert first.results[0] == ("x", "deep", first.id)
    second = notebook.cell("os.environ['JUPYTER_DIST_RUN_ID']")
    assert second.results[0] == second.id


def test_each_cell_shows_its_own_lines_metrics_and_result_only(notebook: Notebook) -> None:
    first = notebook.cell(
        "import jupyter_dist as dist\ndist.log(loss=1.0); dist.log(loss=2.0); print('one')\n1",
        "--session -np 2",
    )
    second = notebook.cell("print('two'); dist.log(acc=3.0)\n2")
    assert (first.log(0), second.log(0)) == ("one\n", "two\n")
    assert (set(first.metrics["name"]), set(second.metrics["name"])) == ({"loss"}, {"acc"})
    assert sorted(second.metrics["step"].unique()) == [0]
    assert (list(first.results), list(second.results)) == ([1, 1], [2, 2])
    assert first.id != second.id


def test_names_that_share_an_object_still_share_it_after_a_change(notebook: Notebook) -> None:
    notebook.plain(
        "weights = [1.0]\nmodel = {'w': weights}\noptimizer = {'of': weights, 'lr': 1}\nalone = [5]"
    )
    code = "optimizer['of'] is model['w'], optimizer['lr'], alone[0]"
    assert notebook.results(code, "--session -np 1") == [(True, 1, 5)]
    notebook.plain("optimizer['lr'] = 2")
    assert notebook.results("optimizer['lr']") == [2]
    assert notebook.results(code) == [(True, 2, 5)]


def test_names_that_share_an_object_stay_together_if_the_ranks_have_changed_one(notebook: Notebook) -> None:
    notebook.plain("weights = [1.0]; model = {'w': weights}; optimizer = {'of': weights, 'lr': 1}")
    notebook.cell("model['w'].append(2.0); optimizer['lr']", "--session -np 1")
    notebook.plain("optimizer['lr'] = 2")
    notebook.cell("optimizer['lr']")
    assert notebook.results("model['w'], optimizer['of'] is model['w']") == [([1.0, 2.0], True)]


def test_settings_of_the_notebook_are_applied_once(notebook: Notebook) -> None:
    notebook.plain("import numpy as np; np.set_printoptions(precision=3)")
    assert notebook.results("str(np.array([1 / 3]))", "--session -np 1") == ["[0.333]"]
    assert notebook.results("np.set_printoptions(precision=5); str(np.array([1 / 3]))") == ["[0.33333]"]
    assert notebook.results("str(np.array([1 / 3]))") == ["[0.33333]"]
    notebook.plain("np.set_printoptions(precision=2)")
    assert notebook.results("str(np.array([1 / 3]))") == ["[0.33]"]


def test_a_note_says_that_the_ranks_use_an_earlier_version_of_a_module(notebook: Notebook) -> None:
    Path("pack").mkdir()
    Path("pack/__init__.py").touch()
    Path("pack/deep.py").write_text("def one(): return 1")
    Path("helper.py").write_text("def two(): return 2")
    with with_modules("pack", "pack.deep", "helper"):
        notebook.plain("import helper, pack.deep, importlib\nfrom pack.deep import one")
        code = "one(), helper.two()"
        first = notebook.cell(code, "--session -np 2")
        assert list(first.results) == [(1, 2)] * 2
        Path("pack/deep.py").write_text("def one(): return 10")
        notebook.plain("importlib.reload(pack.deep); from pack.deep import one")
        assert notebook.results(code, "--session --ranks 1")[1] == (1, 2)
        line = "import importlib, pack, pack.deep; importlib.reload(pack); importlib.reload(pack.deep)"
        assert "note: pack.deep has changed since the ranks imported it" in notebook.printed
        assert line in notebook.printed
        assert notebook.results(code, "--session --ranks 1")[1] == (1, 2)
        assert "has changed" not in notebook.printed  # one note for one version
        notebook.cell(line)
        assert notebook.results(code) == [(10, 2)] * 2
        assert "has changed" not in notebook.printed


@contextlib.contextmanager
def with_modules(*names: str) -> Iterator[None]:
    """Make the working directory's modules importable, and forget them at the end."""
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path.remove(os.getcwd())
        for name in names:
            sys.modules.pop(name, None)
