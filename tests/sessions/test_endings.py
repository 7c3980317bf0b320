"""The ends of cells and of sessions: interrupts at awkward moments, exit handlers, processes that stay."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.errors import LaunchError, RunFailed
from jupyter_dist.folder import runs
from jupyter_dist.job import State
from jupyter_dist.launch import session_link
from jupyter_dist.manage import removal
from jupyter_dist.record import reader
from jupyter_dist.record.sessions import find_session, session_folder
from jupyter_dist.worker import layout, payload
from jupyter_dist.worker.process_identity import start_ticks
from jupyter_dist.worker.session import channel
from tests.rigs.stopwatch import Stopwatch

from .conftest import Notebook
from .test_failures import BEGIN, SUM, waits_in

PRELOADED = ["torch"]
pytestmark = [pytest.mark.usefixtures("warm"), pytest.mark.xdist_group("sessions of torch")]


def pids() -> list[int]:
    session = find_session("main")
    assert session is not None
    return [rank["pid"] for rank in session.about["ranks"]]


def test_an_interrupt_while_a_cell_is_sent_keeps_the_ranks(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.cell("import time; held = 1", "--session -np 2")
    before, receive = pids(), channel.Channel.receive

    def interrupted(link: channel.Channel) -> object:
        answer = receive(link)
        if answer is not None and answer.get("ok"):
            raise KeyboardInterrupt
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(channel.Channel, "receive", interrupted)
        assert isinstance(notebook.fails("time.sleep(1000)"), KeyboardInterrupt)
    assert notebook.results("held") == [1, 1]
    assert pids() == before


@pytest.mark.needs("torch")
def test_ranks_that_end_a_cell_in_spite_of_an_interrupt_get_a_new_process_group(notebook: Notebook) -> None:
    notebook.cell(BEGIN, "--session -np 2")
    waits_in("in it", lambda folder: folder.request("interrupt"), ranks=2)
    notebook.fails(
        "try:\n    print('in it', flush=True)\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    pass"
    )
    assert notebook.results(SUM) == [2.0, 2.0]
    assert notebook.results("kept[0]") == [0, 1]


@pytest.mark.needs("torch")
def test_a_rank_that_has_succeeded_closes_the_users_group_after_a_failure(notebook: Notebook) -> None:
    begin = (
        "import torch, torch.distributed as td\nif not td.is_initialized(): td.init_process_group('gloo')\n"
    )
    notebook.cell(begin, "--session -np 2")
    notebook.fails("if td.get_rank() == 1: raise ValueError('planted')")
    assert notebook.results("td.is_initialized()") == [False, False]
    assert notebook.results(begin + SUM) == [2.0, 2.0]
    assert notebook.results(SUM) == [2.0, 2.0]


@pytest.mark.parametrize("request_", ["interrupt", "stop"])
def test_a_request_right_before_a_cell_begins_is_not_lost(
    notebook: Notebook, wait_for: Callable[..., Any], request_: str
) -> None:
    notebook.plain("class Slow:\n    def __del__(self):\n        import time; time.sleep(1)")
    notebook.cell("import time, gc; held = 1", "--session -np 1")
    before = pids()
    # The rank collects garbage after its report of a failed cell. Meanwhile the next cell waits in the rank.
    notebook.fails("slow = Slow(); slow.itself = slow; del slow; raise ValueError('planted')")
    run = notebook.cell("time.sleep(1000)", "--session --detach")
    wait_for(lambda: reader.status(run.folder).state is State.RUNNING, "the begin of the cell")
    watch = Stopwatch()
    run.folder.request(request_)
    assert run.wait().state == "stopped"
    assert watch.under(4)
    assert notebook.results("held") == [1]
    assert pids() == before


def test_a_session_waits_for_exit_handlers(notebook: Notebook, tmp_path: Path) -> None:
    file = tmp_path / "ended"
    slow = f"import atexit, time\natexit.register(lambda: (time.sleep(6), open({str(file)!r}, 'w').close()))"
    notebook.cell(slow, "--session -np 1")
    spare = session_folder("main") / layout.SPARE
    assert spare.exists()
    assert str(notebook.plain("%dist close")) == "closed the session main with 1 rank"
    assert file.exists()
    assert not spare.exists(), "the reserved space is free again"


@pytest.mark.parametrize("late", ["0,1", "1"])
def test_a_session_that_is_closed_while_ranks_start_does_not_wait_for_them(
    notebook: Notebook, tmp_path: Path, late: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import os, time\nif os.environ.get('RANK', '-') in {late!r}:\n    time.sleep(1000)\n"
    )
    notebook.cell("1", f"--session -np 2 --detach --cold --env PYTHONPATH={tmp_path}")
    log = session_folder("main") / "supervisor.log"
    assert str(notebook.plain("%dist close")) == "closed the session main with 2 ranks"
    assert "exit handlers" not in log.read_text()


@pytest.mark.parametrize("how", ["close", "kill"])
def test_processes_that_have_left_their_rank_end_with_the_session(
    notebook: Notebook, wait_for: Callable[..., Any], how: str
) -> None:
    start = "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True).pid"
    pid = notebook.results(start, "--session -np 1")[0]
    ticks = start_ticks(pid)
    assert notebook.results("1") == [1]
    assert start_ticks(pid) == ticks is not None
    notebook.plain("%dist close --kill" if how == "kill" else "%dist close")
    wait_for(lambda: not Path(f"/proc/{pid}/exe").exists(), "the end of the process")


def test_a_rank_that_can_write_no_file_stays(notebook: Notebook) -> None:
    notebook.cell("import resource; held = 1", "--session -np 2")
    before = pids()
    notebook.fails("resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))")
    notebook.fails("held")
    for pid in before:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert notebook.results("held") == [1, 1]
    assert pids() == before


def test_a_session_that_cannot_start_has_failed(notebook: Notebook) -> None:
    log = session_folder("main") / layout.ATTEMPTS / "0" / "ranks" / "0" / layout.OUTPUT
    log.mkdir(parents=True)
    assert isinstance(notebook.fails("1", "--session -np 1"), RunFailed)
    status = reader.status(next(iter(runs())))
    assert status.state is State.FAILED
    assert status.reason is not None
    assert "it failed: " in status.reason


def test_a_message_of_another_version_is_answered(notebook: Notebook) -> None:
    notebook.cell("held = 1", "--session -np 1")
    session = find_session("main")
    assert session is not None
    with pytest.raises(LaunchError, match="another version of jupyter-dist"):
        session_link.ask(session, {"ask": "cell"})
    assert notebook.results("held") == [1]


def test_a_cell_for_a_session_that_another_one_has_replaced_is_refused(notebook: Notebook) -> None:
    notebook.cell("held = 1", "--session -np 1")
    earlier = find_session("main")
    assert earlier is not None
    notebook.plain("%dist close")
    run = notebook.cell("held = 2", "--session -np 1")
    with pytest.raises(LaunchError, match="was replaced meanwhile"):
        session_link.Delivery(earlier, {}).send(run.folder, run.job.to_json())
    assert notebook.results("held") == [2]


@pytest.mark.parametrize("number", [1, payload.CELL_FORMAT + 1])
def test_a_cell_of_another_version_is_refused_and_the_rank_stays(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    notebook.cell("held = 1", "--session -np 1")
    with monkeypatch.context() as other:
        other.setattr(payload, "CELL_FORMAT", number)
        error = notebook.fails("held")
    assert "The notebook's kernel and the rank have different versions of jupyter-dist" in str(error)
    assert notebook.results("held") == [1]


def test_a_fork_that_comes_to_the_end_of_a_cell_has_succeeded(notebook: Notebook) -> None:
    code = "import os\npid = os.fork()\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else None"
    assert notebook.results(code, "--session -np 1") == [0]
    assert notebook.results("1") == [1]


def test_a_plain_rank_does_not_import_the_loop_of_sessions(notebook: Notebook) -> None:
    code = "import sys\n'jupyter_dist.worker.session.rank_loop' in sys.modules"
    assert notebook.results(code, "-np 1 --cold") == [False]
    assert notebook.results(code, "--session -np 1") == [True]


def test_a_fresh_rank_calls_the_functions_of_on_start_until_they_succeed(
    notebook: Notebook, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    notebook.plain(
        f"""
import jupyter_dist
s = jupyter_dist.session(np=2)
@s.on_start
def prepare():
    global ready
    ready = open({str(gate)!r}) and "yes"
"""
    )
    notebook.fails("import os\nif os.environ['RANK'] == '1': os._exit(1)")
    gate.unlink()
    assert "FileNotFoundError" in str(notebook.fails("1"))
    gate.touch()
    assert notebook.results("ready") == ["yes", "yes"]
    notebook.cell("ready = 'no'")
    notebook.fails("raise ValueError('planted')")
    assert notebook.results("ready") == ["no", "no"]


def test_functions_of_on_start_with_the_same_name(notebook: Notebook) -> None:
    notebook.plain("import jupyter_dist\ns = jupyter_dist.session(np=1)\ncalls = []")
    code = "def _():\n    globals().setdefault('called', []).append({!r})\ns.on_start(_)"
    for word in ("first", "second", "second"):
        notebook.plain(code.format(word))
    notebook.plain(code.format("old").replace("_()", "named()").replace("(_)", "(named)"))
    assert "replaces" not in notebook.printed
    notebook.plain(code.format("new").replace("_()", "named()").replace("(_)", "(named)"))
    assert "note: named replaces the earlier function of the same name" in notebook.printed
    notebook.fails("import os; os._exit(1)")
    assert notebook.results("called") == [["first", "second", "new"]]


def test_a_cell_starts_while_another_process_removes_what_killed_kernels_left(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.cell("held = 1", "--session -np 1")
    send, cleaned = channel.Channel.send, []

    def after_cleaning(link: channel.Channel, message: Mapping[str, Any]) -> None:
        if message.get("ask") == "cell":  # the kernel no longer has the folder locked, the supervisor not yet
            cleaned.append(removal.remove_abandoned())
        send(link, message)

    monkeypatch.setattr(channel.Channel, "send", after_cleaning)
    assert notebook.results("held") == [1]
    assert notebook.results("held", "--session --ranks 0") == [1]
    assert cleaned == [([], 0)] * 2


def test_a_cell_whose_job_cannot_be_written_leaves_nothing(
    notebook: Notebook, own_folders: Path, wait_for: Callable[..., Any]
) -> None:
    notebook.cell("import time; held = 1", "--session -np 1")
    session = find_session("main")
    assert session is not None
    known, before = sorted(folder.path for folder in runs()), pids()
    # For the supervisor, the disk has room for small files only.
    supervisor = session.about["supervisor"]["pid"]
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
    error = notebook.fails(f"time.sleep(1000)\n# {'x' * 10_000}")
    assert isinstance(error, LaunchError)
    assert str(error).startswith("cannot write the job of the cell: File too large. The ranks of the session")
    assert notebook.results("held") == [1]
    assert pids() == before
    (newest, *_) = runs()
    wait_for(lambda: sorted(own_folders.glob("2*")) == sorted([*known, newest.path]), "the end of the folder")
