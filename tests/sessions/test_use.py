"""Sessions as they are used: flags, commands, kernels, the queue, and the calls from Python."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import jupyter_dist
from jupyter_dist import magics
from jupyter_dist.commands import session_commands
from jupyter_dist.commands.completion import complete
from jupyter_dist.conformance.deadlines import PATIENCE_S, wait_until
from jupyter_dist.errors import DistError, InputError, RunFailed
from jupyter_dist.folder import RunFolder, runs
from jupyter_dist.job import State
from jupyter_dist.launch import session_link
from jupyter_dist.record import reader
from jupyter_dist.record.sessions import find_session, list_sessions, session_folder
from jupyter_dist.start import session_default
from jupyter_dist.worker import layout
from jupyter_dist.worker.file_locks import try_lock
from jupyter_dist.worker.session import channel, place
from tests.conftest import Kernel
from tests.rigs.stopwatch import Stopwatch

from .conftest import Notebook

pytestmark = pytest.mark.usefixtures("warm")

_UNDER_MPI = (
    "--backend sagemaker --distribution mpi --instance-type ml.c5.xlarge --image me/torch:1 "
    "--region us-east-1 --role arn:aws:iam::123456789012:role/R"
)
REFUSED = {
    "--session -np 3": "The session 'main' has 2 ranks, not 3. Remove -np 3",
    "--session --tune lr=choice(1,2)": "--session cannot be combined with --tune",
    "--session --scaling 1,2": "--session cannot be combined with --scaling",
    "--session --max-restarts 2": "--session cannot be combined with --max-restarts",
    "--session=../x": "--session needs a name of letters",
    "--session other --backend mpi": "--session does not work with the backend 'mpi' yet",
    "--session other --backend ssh -H a:2 --min-np 1": "--min-np and --max-np do not work with --session",
    f"--session other {_UNDER_MPI}": "--distribution mpi does not work with --session, because mpirun cannot",
    "--session --backend mpi": "The session 'main' uses the backend 'local', not 'mpi'",
    "--session --ranks 0,7": "--ranks 7: the session 'main' has the ranks 0 to 1",
    "--session --ranks x": "--ranks needs ranks such as 0 or 0,2-3",
    "--ranks 1": "--ranks works only with --session",
    "--session --idle-timeout 2h": "--idle-timeout counts when the session 'main' starts",
    "--session --gpus-per-worker 0": "--gpus-per-worker counts when the session 'main' starts",
    "--session --cold": "--cold counts when the session 'main' starts",
    "--session --cluster elsewhere": "The session 'main' uses the backend 'local', not 'mpi'",
    "--session --env A=b": "--env sets variables when the session 'main' starts",
}


def test_flags_that_suited_the_last_session_are_checked_for_a_new_one(notebook: Notebook) -> None:
    for _ in range(3):
        notebook.cell("1", "--session -np 1")
    notebook.plain("%dist close")
    notebook.cell("1", "--session -np 2")
    error = notebook.fails("1", "--session -np 1")
    assert isinstance(error, InputError)
    assert "The session 'main' has 2 ranks, not 1" in str(error)


def test_a_cell_leaves_nothing_in_the_import_system(notebook: Notebook) -> None:
    count = "import sys\n[len(part) for part in (sys.meta_path, sys.path, sys.path_hooks)]"
    notebook.cell(count, "--session -np 1")
    assert notebook.results(count) == notebook.results(count)


def test_what_a_session_cannot_do_is_refused_with_one_error(notebook: Notebook) -> None:
    notebook.cell("held = 1", "--session -np 2")
    notebook.plain("%dist clusters add elsewhere --backend mpi")
    known = len(list(runs()))
    for line, expected in REFUSED.items():
        error = notebook.fails("1", line)
        assert isinstance(error, InputError), line
        assert str(error).startswith(expected), line
    assert len(list(runs())) == known
    assert [session.name for session in list_sessions()] == ["main"]
    with pytest.raises(InputError, match="no session is named 'nope'"):
        notebook.plain("%dist close nope")


def test_the_commands_list_choose_and_close_sessions(notebook: Notebook) -> None:
    notebook.cell("held = [1]", "--session mine -np 2")
    table = str(notebook.plain("%dist sessions"))
    assert "mine" in table
    assert "held (list, 1 item)" in table
    notebook.plain("%dist session mine")
    first = notebook.cell("held", "")
    assert list(first.results) == [[1], [1]]
    assert first.job.session is not None
    assert "`%dist session off`" in str(notebook.fails("1", "--backend mpi"))
    notebook.plain("%dist session off")
    assert "`%dist session off`" not in str(notebook.fails("1", "--session mine --backend mpi"))
    assert notebook.cell("1", "-np 1 --cold").job.session is None
    assert str(notebook.plain("%dist close mine")) == "closed the session mine with 2 ranks"
    assert list_sessions() == []


def test_a_dry_run_names_the_session(notebook: Notebook) -> None:
    notebook.plain("lr = 0.1")
    first = notebook.plain("%%distribute --session -np 2 --dry-run\nlr")
    assert first["session"] == {"name": "main", "runs": False}
    assert len(first["request"]["ranks"]) == 2
    assert find_session("main") is None
    notebook.cell("held = lr", "--session -np 2")
    known = len(list(runs()))
    again = notebook.plain("%%distribute --session --ranks 1 --dry-run\nheld, lr")
    assert again["session"] == {"name": "main", "runs": True}
    assert (again["np"], again["ranks"], again["payload"]["names"]) == (2, [1], [])
    assert "request" not in again
    assert "--cold counts" in str(notebook.fails("1", "--session --cold --dry-run"))
    assert len(list(runs())) == known


def test_a_dry_run_names_the_modules_that_a_cell_sends_again(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "dry_run_helper", raising=False)
    Path("dry_run_helper.py").write_text("def two(): return 2")
    notebook.plain("import dry_run_helper")
    notebook.cell("dry_run_helper.two()", "--session -np 1")
    told = notebook.plain("%%distribute --session --dry-run\ndry_run_helper.two()")
    assert told["payload"]["modules"] == ["dry_run_helper.py"]


def test_a_running_session_is_used_whatever_cluster_the_notebook_uses(notebook: Notebook) -> None:
    notebook.cell("held = 1", "--session -np 2")
    notebook.plain("%dist clusters add elsewhere --backend mpi --env A=b")
    notebook.plain("%dist use elsewhere")
    run = notebook.cell("held")
    assert list(run.results) == [1, 1]
    assert (run.job.backend, run.job.cluster) == ("local", None)


def test_a_cell_uses_the_plan_of_the_last_one_until_the_notebook_uses_another_cluster(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.plain("%dist clusters add patient --backend local --stop-grace 77")
    notebook.cell("held = 1", "--session -np 1")
    notebook.cell("held")
    with monkeypatch.context() as no_plan:
        no_plan.delattr(magics, "make_plan")
        assert notebook.results("held") == [1]
        with pytest.raises(NameError, match="make_plan"):
            notebook.plain("%%distribute --session --ranks 0\nheld")
    notebook.plain("%dist use patient")
    assert notebook.cell("held").job.stop_grace_s == 77
    notebook.plain("%dist use local")
    assert notebook.cell("held").job.stop_grace_s is None


def test_the_hint_on_a_name_that_only_other_ranks_have(notebook: Notebook) -> None:
    notebook.plain("zz = 1")
    notebook.cell("1", "--session -np 2")
    notebook.cell("zz = 5", "--session --ranks 0")
    error = str(notebook.fails("print(zz)"))
    assert "'zz' belongs to the ranks of the session main, and this rank lacks it" in error
    assert 'jupyter_dist.session("main")["zz"] = zz' in error
    assert "'never_made' is neither in the notebook" in str(notebook.fails("never_made"))
    assert "import jupyter_dist as dist" in str(notebook.fails("dist.rank()"))


def test_one_line_and_some_ranks(notebook: Notebook) -> None:
    notebook.cell("import os\nloss = int(os.environ['RANK']) + 0.5", "--session -np 3")
    assert list(notebook.plain("%distribute --session loss * 2").results) == [1.0, 3.0, 5.0]
    assert list(notebook.plain("%distribute --session=main max(x for x in [1, 3])").results) == [3, 3, 3]
    some = notebook.plain("%distribute --session --ranks 1-2 loss if True else {'a': 1}")
    assert (some.results[1], some.results[2]) == (1.5, 2.5)
    with pytest.raises(InputError, match="has no cell to run"):
        notebook.plain("%distribute -np 2")


def test_tab_completes_names_of_rank_0(notebook: Notebook) -> None:
    notebook.cell("weights_of_rank = 1", "--session -np 1")
    assert session_default.names("%%distribute --session\nweig", "weig") == ["weights_of_rank"]
    assert session_default.names("%%distribute --session other\nweig", "weig") == []
    assert session_default.names("%%distribute -np 2\nweig", "weig") == []


def test_tab_completes_sessions_and_flags_behind_session(notebook: Notebook) -> None:
    notebook.cell("1", "--session mine -np 1")
    assert complete("%%distribute --session mi") == ("mi", ["mine"])
    assert complete("%dist close mi") == ("mi", ["mine"])
    assert complete("%%distribute --session --ran") == ("--ran", ["--ranks"])


def test_the_calls_from_python(notebook: Notebook) -> None:
    notebook.plain(
        """
import jupyter_dist, numpy as np
bias = 1
def f(x):
    global got
    got = x * 2 + bias
    return got
s = jupyter_dist.session("py", np=2, env={"MINE": "x"}, idle_timeout="1h", options={"gpus_per_worker": 0})
first = s.run(f, 4)
bias = 2
second = s.run(f, 4)
s["lr"] = 0.1
s.scatter("shard", [np.arange(2), np.arange(3)])
"""
    )
    space = notebook.shell.user_ns
    session = space["s"]
    assert (list(space["first"].results), list(session.results)) == ([9, 9], [10, 10])
    assert (session["got"], session["lr"]) == ([10, 10], [0.1, 0.1])
    assert [len(part) for part in session["shard"]] == [2, 3]
    assert numpy.array_equal(session.gather("shard"), [0, 1, 0, 1, 2])
    with pytest.raises(InputError, match="one part for each of the 2 ranks, and got 3"):
        session.scatter("shard", [1, 2, 3])
    with pytest.raises(InputError, match="scatter needs a list with one part for each rank, got int"):
        session.scatter("shard", 1)
    with pytest.raises(InputError, match="has 2 ranks, not 4"):
        jupyter_dist.session("py", np=4)
    with pytest.raises(InputError, match="--env sets variables"):
        jupyter_dist.session("py", env={"A": "b"})
    session.close()
    assert find_session("py") is None
    session.close()


def test_a_name_that_is_deleted_from_python_is_the_notebooks_again(notebook: Notebook) -> None:
    notebook.cell("a = b = 1\nimport os\nif os.environ['RANK'] == '1': only = 2", "--session -np 2")
    notebook.plain("import jupyter_dist; s = jupyter_dist.session(); a, late = 5, 6; del s['a']")
    assert notebook.results("a, late") == [(5, 6)] * 2
    notebook.plain("del s['late'], s['only']")  # the first is of the notebook, and rank 0 lacks the second
    for name in ("late", "only"):
        with pytest.raises(
            KeyError, match=f"no rank of the session 'main' has the name '{name}'. Rank 0 has: a, b"
        ):
            notebook.plain(f"del s['{name}']")
    assert notebook.results("late") == [6, 6]


def test_a_name_that_ranks_lack_is_an_error_with_the_names_that_are_there(notebook: Notebook) -> None:
    notebook.cell("a = 1\nimport os\nif os.environ['RANK'] != '1': most = 2", "--session -np 3")
    notebook.plain("import jupyter_dist; s = jupyter_dist.session()")
    for code in ("s['nope']", "s.gather('nope')"):
        with pytest.raises(
            KeyError, match=r"no rank of the session 'main' has the name 'nope'\. Rank 0 has: a, most"
        ):
            notebook.plain(code)
    with pytest.raises(KeyError, match="rank 1 of the session 'main' has no name 'most'"):
        notebook.plain("s['most']")
    with pytest.raises(InputError, match="a session has names such as 'lr', got 0"):
        notebook.plain("s[0]")


def test_a_session_that_does_not_run_is_not_started_for_a_name(notebook: Notebook) -> None:
    notebook.plain("import jupyter_dist; s = jupyter_dist.session('early', np=2)")
    for code in ("s['x']", "s.gather('x')", "del s['x']"):
        with pytest.raises(
            InputError, match=r"'early' does not run, so it has no name 'x'\. Its first call starts it"
        ):
            notebook.plain(code)
    assert list_sessions() == []


def test_a_closed_session_is_not_started_again(notebook: Notebook) -> None:
    notebook.plain("import jupyter_dist\nwith jupyter_dist.session('py', np=1) as s: s['x'] = 1")
    calls = ("s['x']", "s['x'] = 2", "del s['x']", "s.gather('x')", "s.scatter('x', [1])", "s.run(print)")
    for code in (*calls, "s.on_start(print)"):
        expected = (
            r"This session \('py'\) is closed\. Make a new session: jupyter_dist\.session\('py', np=1\)"
        )
        with pytest.raises(InputError, match=expected):
            notebook.plain(code)
    assert list_sessions() == []
    assert notebook.plain("s = jupyter_dist.session('py', np=1); s['x'] = 3; s['x']") == [3]


def test_the_path_of_a_script_is_gone_after_it(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("import os\nhere = __file__, __package__, __spec__.name\n")
    (tmp_path / "train.py").write_text("here = __file__, __package__, __spec__\n")
    look = "globals().get('__file__'), __package__, __spec__"
    assert notebook.results(f"{look}", "--session -np 1") == [(None, None, None)]
    for words, expected in (
        (("train.py",), (str(tmp_path / "train.py"), None, None)),
        (("-m", "pkg.train"), (str(tmp_path / "pkg" / "train.py"), "pkg", "pkg.train")),
    ):
        subprocess.run(
            [sys.executable, "-m", "jupyter_dist", "run", "--session=main", *words], cwd=tmp_path, check=True
        )
        assert notebook.results(f"here, {look}") == [(expected, None, None, None)]
    notebook.cell("__file__ = 'mine'")
    assert notebook.results("__file__") == ["mine"]


def test_a_fresh_rank_calls_the_functions_of_on_start_first(notebook: Notebook) -> None:
    notebook.plain(
        """
import jupyter_dist
s = jupyter_dist.session(np=2)
@s.on_start
def prepare():
    global ready
    ready = "yes"
"""
    )
    assert notebook.results("import os; ready") == ["yes", "yes"]
    notebook.fails("if os.environ['RANK'] == '1': os._exit(1)")
    assert notebook.results("ready") == ["yes", "yes"]
    notebook.cell("ready = 'no'")
    notebook.fails("import os\nif os.environ['RANK'] == '1': os._exit(1)")
    assert notebook.results("ready", "--session --session-restart all") == ["yes", "yes"]


def test_with_closes_the_session(notebook: Notebook) -> None:
    notebook.plain("import jupyter_dist\nwith jupyter_dist.session(np=1) as s:\n    s['x'] = 1; got = s['x']")
    assert notebook.shell.user_ns["got"] == [1]
    assert list_sessions() == []


def test_with_prints_the_bill_that_the_command_prints(notebook: Notebook) -> None:
    """The bill is planted. test_sagemaker_sessions.py has what SageMaker reports."""
    notebook.cell("1", "--session -np 1")
    end = session_folder("main") / place.ENDED
    bill = json.dumps({"why": "billed 60 s", "at": time.time()})
    end.write_text(bill)
    assert str(notebook.plain("%dist close")) == "closed the session main with 1 rank\nbilled 60 s"
    notebook.cell("1", "--session -np 1")
    end.write_text(bill)
    notebook.plain("import jupyter_dist\nwith jupyter_dist.session(): pass")
    assert notebook.printed == "billed 60 s\n"
    assert not end.exists()  # one line for one end


def test_the_next_cell_queues_and_says_so(notebook: Notebook, wait_for: Callable[..., Any]) -> None:
    notebook.cell("import time, pathlib; log = []", "--session -np 1")
    gate = Path("gate").absolute()
    first = notebook.cell(
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\nlog.append(1)",
        "--session --detach",
    )
    second = notebook.cell("log.append(2)", "--session --detach")
    third = notebook.cell("log.append(3)", "--session --detach")
    wait_for(lambda: reader.status(first.folder).state is State.RUNNING, "the first cell")
    status = reader.status(third.folder)
    assert status.state is State.PENDING
    assert status.reason == f"the session main runs {second.id} first"
    assert find_session("main").about["queued"] == [second.id, third.id]  # type: ignore[union-attr]
    third.folder.request("stop")
    wait_for(lambda: reader.status(third.folder).state is State.STOPPED, "the end of the queued cell")
    gate.touch()
    assert first.wait().state == second.wait().state == "succeeded"
    assert notebook.results("log") == [[1, 2]]


def test_a_cell_in_the_queue_uses_what_the_cell_before_it_makes(notebook: Notebook) -> None:
    notebook.cell("import time, pathlib", "--session -np 1")
    notebook.plain("seen, lr = [1], 1")
    gate = Path("gate").absolute()
    waits = f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n"
    notebook.cell(waits + "seen.append(2); lr = lr + 1", "--session --detach")
    second = notebook.cell("seen, lr", "--session --detach")
    gate.touch()
    assert list(second.wait().results) == [([1, 2], 2)]


def test_a_cell_moves_the_folder_that_its_session_has_made(
    notebook: Notebook, wait_for: Callable[..., Any]
) -> None:
    notebook.cell("1", "--session -np 2")
    made = session_folder("main") / place.NEXT
    for line, moves in (("--session", True), ("--session --ranks 1", False)):
        wait_for(made.is_dir, "the folder of the next cell")
        inode = made.stat().st_ino
        folder = notebook.cell("print(2)", line).folder.path
        assert (folder.stat().st_ino == inode) is moves
        assert folder.stat().st_mode & 0o777 == 0o700
    notebook.plain("%dist close")
    assert not made.exists()


def test_a_cell_uses_the_files_that_its_session_has_made(
    notebook: Notebook, wait_for: Callable[..., Any]
) -> None:
    notebook.cell("1", "--session -np 2")
    made = RunFolder(session_folder("main") / place.NEXT)
    for code in ("2", "raise ValueError('planted')", "lambda: open"):
        wait_for(made.path.is_dir, "the folder of the next cell")
        prepared = {
            path.name.lstrip("."): path.stat().st_ino for path in made.path.iterdir() if path.is_file()
        }
        room = made.rank(0, 0).path / layout.hidden(layout.ERROR)
        result = room.stat().st_ino
        (notebook.fails if "planted" in code else notebook.cell)(code)
        folder = next(iter(runs()))
        # The notebook's thread writes `environment.json` at any time after the cell.
        others = (path for path in folder.path.rglob("*") if layout.ENVIRONMENT not in path.name)
        files = {path for path in others if path.is_file()}
        assert not [path for path in files if path.name.startswith(".")]
        inodes = {path.name: path.stat().st_ino for path in files if path.parent == folder.path}
        assert {name: inodes[name] for name in prepared} == prepared
        end = folder.rank(0, 0).error if "planted" in code else folder.rank(0, 0).result
        assert end.stat().st_ino == result
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_warning_of_the_compiler_is_in_the_log_of_its_cell_once(notebook: Notebook) -> None:
    for line in ("--session -np 1", "--session", "--session"):
        run = notebook.cell("assert (1, 'always true')", line)
        assert run.log(0).count("SyntaxWarning") == 1


def test_a_session_that_is_closed_with_the_packet_of_a_cell_stops_the_cell(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., Any]
) -> None:
    notebook.cell("import time", "--session -np 1")
    send = channel.Channel.send

    def both(link: channel.Channel, message: Mapping[str, Any]) -> None:
        if message.get("ask") != "cell":
            send(link, message)
            return
        link.sock.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in (message, {"ask": "close"})))

    monkeypatch.setattr(channel.Channel, "send", both)
    run = notebook.cell("time.sleep(1000)", "--session --detach")
    wait_for(lambda: reader.status(run.folder).state.ended, "the end of the cell")
    status = reader.status(run.folder)
    assert (status.state, status.reason) == (State.STOPPED, "the session ends: a user has closed it")
    wait_for(lambda: list_sessions() == [], "the end of the session")


def test_an_idle_session_ends(notebook: Notebook, wait_for: Callable[..., Any]) -> None:
    notebook.cell("1", "--session -np 1 --idle-timeout 0.5")
    wait_for(lambda: list_sessions() == [], "the end of the idle session")
    assert notebook.results("'held' in globals()", "--session -np 1") == [False]
    assert "note: the earlier session main ended at " in notebook.printed
    assert ": it was idle for 0.50 s. This cell starts a new session" in notebook.printed
    notebook.plain("%dist close")
    notebook.cell("1", "--session -np 1")
    assert "the earlier session" not in notebook.printed


def test_the_list_shows_when_an_idle_session_ends(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.cell("1", "--session -np 1 --idle-timeout 10m")
    assert "if no cell uses it" not in str(notebook.plain("%dist sessions"))
    later = SimpleNamespace(time=lambda: time.time() + 400)
    monkeypatch.setattr(session_commands, "time", later)
    assert "; ends in" in str(notebook.plain("%dist sessions"))


def test_a_session_of_another_host_is_neither_used_nor_ended(notebook: Notebook) -> None:
    notebook.cell("held = 1", "--session -np 1")
    mine = find_session("main")
    assert mine is not None
    other = place.sessions_root(mine.path.parent.parent) / "other"
    other.mkdir(0o700)
    about = {**mine.about, "supervisor": {**mine.about["supervisor"], "host": "elsewhere", "pid": 1}}
    (other / place.ABOUT).write_text(json.dumps({**about, "heartbeat": time.time()}))
    (other / place.NAMES).write_bytes((mine.path / place.NAMES).read_bytes())
    (other / place.NEXT).mkdir()
    try:
        error = notebook.fails("1", "--session other")
        assert "runs on the machine 'elsewhere'" in str(error)
        assert (other / place.NEXT).is_dir()
        with pytest.raises(DistError, match="runs on the machine 'elsewhere'"):
            notebook.plain("%dist close other")
        assert find_session("other") is not None
    finally:
        (other / place.ABOUT).unlink()


def test_a_stale_folder_is_no_session(notebook: Notebook) -> None:
    notebook.cell("held = 1", "--session -np 1")
    mine = find_session("main")
    assert mine is not None
    reused = place.sessions_root(mine.path.parent.parent) / "reused"
    reused.mkdir(0o700)
    about = {**mine.about["supervisor"], "pid": os.getpid(), "start_ticks": 1}
    (reused / place.ABOUT).write_text(json.dumps({**mine.about, "supervisor": about}))
    assert find_session("reused") is None


def test_the_socket_is_private_and_a_long_path_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir(0o700)
    with channel.listen(deep) as listener:
        assert (deep / place.SOCKET).stat().st_mode & 0o077 == 0
        link = channel.connect(deep)
        accepted = channel.Channel(listener.accept()[0])
        link.send({"a": 1})
        assert accepted.receive() == {"a": 1}
        assert accepted.peer() == (os.getpid(), os.geteuid())
        link.close()
        assert accepted.receive() is None
        accepted.close()


def test_nonsense_on_the_socket_does_not_end_the_session(notebook: Notebook) -> None:
    notebook.cell("held = 1", "--session -np 1")
    session = find_session("main")
    assert session is not None
    cell = b'{"ask": "cell", "folder": "/nowhere"}'
    for data in (b"\xff", b"{}", cell, b"[1]", b'{"rank": 9, "pid": 1}'):
        link = channel.connect(session.path)
        try:
            link.sock.settimeout(PATIENCE_S)
            link.sock.sendall(data + b"\n")
            answer = link.receive()
        finally:
            link.close()
        assert answer is None or "error" in answer, data
    assert notebook.results("held") == [1]


def test_one_kernel_at_a_time_starts_a_session() -> None:
    lock = session_folder("main") / place.START_LOCK
    with session_link.starting("main"):
        assert try_lock(lock) is None
    free = try_lock(lock)
    assert free is not None
    free.release()


@pytest.mark.timeout(180)
def test_two_kernels_that_start_one_session_get_one(start_kernel: Callable[[], Kernel]) -> None:
    kernels = [start_kernel(), start_kernel()]
    for kernel in kernels:
        kernel.run("%load_ext jupyter_dist")
    cells = [kernel.start("%%distribute --session -np 2\nimport os; os.getppid()") for kernel in kernels]
    for cell in cells:
        assert cell.finish().error is None, cell.text
    assert [session.name for session in list_sessions()] == ["main"]
    for kernel in kernels:
        kernel.run("%%distribute --session\n1")


def test_the_session_outlives_its_kernel(start_kernel: Callable[[], Kernel]) -> None:
    kernel = start_kernel()
    kernel.run("%load_ext jupyter_dist\ny = 3")
    kernel.run("%%distribute --session -np 2\nx = [y]")
    first = next(iter(runs()))
    assert "fresh process" not in first.supervisor_log.read_text()  # the warm ranks have started
    assert reader.status(first).warm
    kernel.restart()
    kernel.run("%load_ext jupyter_dist\ny = 4")
    assert "[3, 4]" in kernel.run("%%distribute --session\nx + [y]").text
    kernel.kill()
    other = start_kernel()
    other.run("%load_ext jupyter_dist")
    assert "[3]" in other.run("%%distribute --session\nx").text


def test_the_stop_button_ends_the_cell_and_keeps_the_ranks(start_kernel: Callable[[], Kernel]) -> None:
    kernel = start_kernel()
    kernel.run("%load_ext jupyter_dist")
    kernel.run("%%distribute --session -np 2\nimport time\nx = 1")
    cell = kernel.start("%%distribute --session\nprint('in it', flush=True)\ntime.sleep(1000)")
    cell.until(lambda cell: "in it" in cell.text)
    watch = Stopwatch()
    kernel.interrupt()
    assert "RunStopped" in (cell.finish().error or "")
    assert watch.under(3)
    kernel.run("%%distribute --session\nassert x == 1")


@pytest.mark.needs("torch")
@pytest.mark.timeout(300)
def test_after_any_sequence_of_failures_the_next_cell_works(notebook: Notebook, dice: random.Random) -> None:
    begin = "import torch, torch.distributed as td, os, time\nimport jupyter_dist as dist\ndist.init()\n"
    total = "td.all_reduce(t := torch.ones(1))\n"
    notebook.cell(begin + "count = 0", "--session -np 2")
    fresh: set[int] = set()
    expected = {0: 0, 1: 0}
    for number in range(12):
        kind = dice.choice(["fine", "raises", "interrupted", "killed"])
        rank = dice.randrange(2)
        if kind == "fine":
            notebook.cell(begin + total)
        elif kind == "raises":
            error = notebook.fails(f"{begin}if dist.rank() == {rank}: raise ValueError({number})\n{total}")
            assert str(error).startswith(f"rank {rank}"), error
        elif kind == "interrupted":
            mark = f"in {number}"
            known = {folder.id for folder in runs()}
            stopper = threading.Thread(target=_interrupt, args=(mark, known))
            stopper.start()
            notebook.fails(
                f"{begin}print({mark!r}, flush=True)\nif dist.rank() == {rank}: time.sleep(1000)\n{total}"
            )
            stopper.join()
        else:
            error = notebook.fails(f"{begin}if dist.rank() == {rank}: os.kill(os.getpid(), 9)\n{total}")
            assert isinstance(error, RunFailed)
            fresh.add(rank)
            expected[rank] = 0
        watch = Stopwatch()
        found = notebook.results(
            f"{begin}count = globals().get('count', 0) + 1\n{total}(float(t), count)",
        )
        assert watch.under(6)
        expected = {rank: count + 1 for rank, count in expected.items()}
        assert found == [(2.0, expected[0]), (2.0, expected[1])], (number, kind, rank)


def _interrupt(mark: str, known: set[str]) -> None:
    def printed() -> RunFolder | None:
        for folder in runs():
            logs = [folder.rank(0, rank).output for rank in (0, 1)]
            if folder.id not in known and all(log.exists() and mark in log.read_text() for log in logs):
                return folder
        return None

    folder = wait_until(printed, "the ranks in their cell")
    assert folder is not None
    folder.request("interrupt")


def test_a_closing_session_refuses_cells(notebook: Notebook) -> None:
    notebook.cell("held = 1", "--session -np 1")
    session = find_session("main")
    assert session is not None
    assert session_link.close(session)
    with pytest.raises(DistError):
        session_link.ask(session, {"ask": "about"})
    assert notebook.results("'held' in globals()", "--session -np 1") == [False]


def test_a_cell_records_the_resources_of_its_ranks(notebook: Notebook, wait_for: Callable[..., Any]) -> None:
    notebook.cell("import time", "--session -np 1")
    run = notebook.cell("while True: time.sleep(0.01)", "--session --detach")
    usage = run.folder.rank(0, 0).usage
    wait_for(lambda: usage.exists() and '"memory"' in usage.read_text(), "a measurement")
    run.folder.request("stop")
    run.wait()


def test_a_cell_of_a_session_stops_in_the_debugger(notebook: Notebook, wait_for: Callable[..., Any]) -> None:
    notebook.cell("held = 1", "--session -np 2")
    run = notebook.cell("x = held + 4\nbreakpoint()\nprint('after', x)", "--session --detach")
    wait_for(lambda: len(run.status.waits) == 2, "the prompts of both ranks")
    assert str(notebook.plain("%dist debug --all p x")) == "ranks 0-1: 5"
    notebook.plain("%dist debug --all continue")
    assert run.wait().state == "succeeded"
    assert run.log(1) == "after 5\n"
    assert run.status.waits == ()
    assert notebook.results("x") == [5, 5]
