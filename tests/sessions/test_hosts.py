"""Sessions whose ranks are on two hosts with real sshd."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.errors import RunFailed
from jupyter_dist.folder import RunFolder, runs
from jupyter_dist.queries.sessions import sessions
from jupyter_dist.record import reader
from jupyter_dist.record.sessions import find_session
from tests.rigs.answering import User, waiting
from tests.rigs.hosts import Hosts, missing

from .conftest import Notebook
from .test_failures import BEGIN, SUM, waits_in

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts for all tests of this module."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    with Hosts(tmp_path_factory.mktemp("session") / "hosts", ["h1", "h2"]) as running:
        yield running


@pytest.fixture
def line(hosts: Hosts) -> str:
    """The line of a session's first cell, with one rank on each host."""
    return (
        f"--session --backend ssh -H h1:1,h2:1 -np 2 --python {sys.executable} --grace 20 "
        f"--ssh-config {hosts.ssh_config}"
    )


@pytest.fixture(autouse=True)
def nothing_left(hosts: Hosts, sessions_end: None) -> Iterator[None]:
    yield
    for session in sessions():
        os.kill(find_session(session["name"]).about["supervisor"]["pid"], signal.SIGTERM)  # type: ignore
    wait_until(lambda: not _left(hosts), "the end of all that ran on the hosts", lambda: str(_left(hosts)))


def _left(hosts: Hosts) -> list[Any]:
    found: list[Any] = [process.argv for name in hosts.names for process in hosts.pids(name)]
    for name in hosts.names:
        listed = hosts.exec(name, ["sh", "-c", "ls ~/.cache/jupyter-dist/hosts 2>/dev/null || true"])
        found += listed.stdout.split()
    return found


def pids(hosts: Hosts) -> list[int]:
    """The pids of the session's ranks, as the hosts see them."""
    found = find_session("main")
    assert found is not None
    return [rank["pid"] for rank in found.about["ranks"]]


def pid_here(hosts: Hosts, name: str, own_pid: int) -> int:
    return next(process.pid for process in hosts.pids(name) if process.own_pid == own_pid)


@pytest.mark.needs("torch")
def test_cells_keep_values_and_the_process_group_on_two_hosts(
    hosts: Hosts, line: str, notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.plain("import numpy as np\nlarge = np.arange(1_000_000)\nlr = 0.1")
    begin = BEGIN + "import socket\nprint('first', dist.rank())\nseen = [float(large.sum() * lr)]\n"
    notebook.cell(f"{begin}dist.log(loss=0.5)", line)
    notebook.plain("lr = 0.2")
    (tmp_path / "beside.py").write_text("text = 'sent with a later cell, which names no backend'")
    monkeypatch.syspath_prepend(tmp_path)
    notebook.plain("import beside")
    run = notebook.cell(
        "print('second')\npath = dist.checkpoint_dir() / f'{dist.rank()}.txt'\npath.write_text('kept')\n"
        f"{SUM.removesuffix('; float(t)')}\nsocket.gethostname(), len(seen), lr, float(t)\n"
    )
    assert list(run.results) == [("h1", 1, 0.2, 2.0), ("h2", 1, 0.2, 2.0)]
    files = notebook.results("import os; beside.__file__ != os.path.realpath('beside.py'), beside.text[:4]")
    assert files == [(True, "sent")] * 2
    assert [run.log(rank) for rank in range(2)] == ["second\n"] * 2
    assert sorted(path.name for path in run.folder.checkpoints.iterdir()) == ["0.txt", "1.txt"]
    status = reader.status(run.folder)
    assert [rank.host for rank in status.ranks] == ["h1", "h2"]
    *_, first = runs()
    assert (first.rank(0, 1).output.read_text(), run.folder.payload.stat().st_size < 100_000) == (
        "first 1\n",
        True,
    )
    wait_until(lambda: all(rank["memory_bytes"] for rank in sessions()[0]["ranks"]), "the ranks' memory")
    notebook.plain("%dist close")


@pytest.mark.needs("torch")
def test_ranks_leave_a_collective_when_one_raises_or_the_user_interrupts(
    hosts: Hosts, line: str, notebook: Notebook
) -> None:
    notebook.cell(BEGIN, line)
    before = pids(hosts)
    error = notebook.fails("if dist.rank() == 1: raise ValueError('planted')\n" + SUM)
    assert isinstance(error, RunFailed)
    assert str(error).startswith("rank 1")
    assert "planted" in str(error)
    waits_in("in it", lambda folder: folder.request("interrupt"))
    code = "print('in it', flush=True)\nif dist.rank() == 0:\n    while True: time.sleep(0.1)\n" + SUM
    assert "stopped" in str(notebook.fails(code))
    assert notebook.results("kept[0], " + SUM.replace("; float(t)", "") + "\nkept[0], float(t)") == [
        (0, 2.0),
        (1, 2.0),
    ]
    assert pids(hosts) == before


@pytest.mark.needs("torch")
def test_a_dead_rank_is_replaced_on_its_host(hosts: Hosts, line: str, notebook: Notebook) -> None:
    notebook.cell(BEGIN, line)
    notebook.plain(
        "import jupyter_dist, numpy as np\ntable = np.ones(100_000)\n"
        "def prepare():\n    global total\n    total = float(table.sum())\n"
        "jupyter_dist.session('main').on_start(prepare)"
    )
    error = notebook.fails("if dist.rank() == 1: os.kill(os.getpid(), 9)\n" + SUM)
    assert str(error).startswith("rank 1 failed first")
    assert "SIGKILL" in str(error)
    told = reader.status(next(iter(runs()))).told
    assert told is not None
    assert "rank 1 has ended" in told
    assert notebook.results("import os\nos.environ['RANK'], 'kept' in globals(), total") == [
        ("0", True, 100_000.0),
        ("1", False, 100_000.0),
    ]
    assert "rank 1 is a fresh process" in notebook.printed
    assert notebook.results(BEGIN + SUM) == [2.0, 2.0]


def test_hosts_keep_their_own_environment_and_directory(
    line: str, notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "")  # so that it is undone
    monkeypatch.delenv("PLANTED")
    look = "import os; os.environ.get('PLANTED'), os.getcwd()"
    notebook.shell.run_cell("import os; os.environ['PLANTED'] = '1'", store_history=True)
    before = notebook.results(look, line)
    assert [variable for variable, _ in before] == [None, None]
    assert "note: PLANTED: set in the notebook, but not on the other hosts" in notebook.printed
    monkeypatch.chdir(tmp_path)
    assert notebook.results(look) == before


def test_a_lost_connection_is_made_again_in_the_middle_of_a_cell(
    hosts: Hosts, line: str, notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.cell("import time, os; held = int(os.environ['RANK'])", line)

    def cut(folder: RunFolder) -> None:
        hosts.cut("h2")
        shown = lambda: "h2" in (reader.status(folder).reason or "")  # noqa: E731
        wait_until(shown, "the note that the host does not answer")
        hosts.mend("h2")

    thread = waits_in("in it", cut)
    run = notebook.cell("print('in it', flush=True)\nfor i in range(40): print(i); time.sleep(0.2)\nheld")
    thread.join()
    assert list(run.results) == [0, 1]
    assert run.log(1).split() == ["in", "it", *map(str, range(40))]
    run = notebook.cell("name = input('Name: ')\nname, held", "--session --detach")
    waiting(run.folder, 2)
    User(run.folder, 0, 1).say("Ada")
    assert list(run.wait().results) == [("Ada", 0), ("Ada", 1)]


def test_a_host_that_ends_is_named_and_a_killed_supervisor_leaves_nothing(
    hosts: Hosts, line: str, notebook: Notebook
) -> None:
    notebook.cell("import time; held = 1", line.replace("--grace 20", "--grace 5"))
    waits_in("in it", lambda folder: hosts.power_off("h2"))
    error = notebook.fails("print('in it', flush=True)\ntime.sleep(1000)")
    assert str(error).startswith("rank 1 failed first (host h2)")
    status = reader.status(next(iter(runs())))
    assert "host h2 was lost" in str(status.reason)
    assert "rank 1 has ended, and with it held" in str(status.told)
    hosts.power_on("h2")
    assert notebook.results("'held' in globals()") == [True, False]
    told = str(notebook.plain("%dist close --kill"))
    assert "its hosts end the ranks when no supervisor has answered for 5.0 s" in told


def test_an_agent_that_ends_takes_its_ranks_along(hosts: Hosts, line: str, notebook: Notebook) -> None:
    notebook.cell("held = 1", line)
    agent = next(process for process in hosts.pids("h2") if "jupyter_dist.agent" in process.argv)
    os.kill(agent.pid, signal.SIGKILL)

    def is_noticed() -> bool:
        found = find_session("main")
        return found is not None and found.about["ranks"][1]["state"] != "running"

    wait_until(is_noticed, "the session's note of the rank's end")
    assert notebook.results("'held' in globals()") == [True, False]


def test_a_host_that_cannot_be_used_is_named_and_no_session_is_left(line: str, notebook: Notebook) -> None:
    error = notebook.fails("1", line.replace("h2:1", "198.18.255.1:1"))
    assert "198.18.255.1" in str(error)
    assert "Nothing was started" in str(error)
    wait_until(lambda: find_session("main") is None, "the end of the session")
