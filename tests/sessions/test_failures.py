"""What breaks a cell of a session, and what the next cell finds."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.errors import RunFailed
from jupyter_dist.folder import RunFolder, runs
from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.record.sessions import find_session
from jupyter_dist.worker import layout
from jupyter_dist.worker.session import place
from tests.rigs.launching import until
from tests.rigs.stopwatch import Stopwatch

from .conftest import Notebook

PRELOADED = ["torch"]
pytestmark = [pytest.mark.usefixtures("warm"), pytest.mark.xdist_group("sessions of torch")]

SUM = "td.all_reduce(t := torch.ones(1)); float(t)"
BEGIN = "import torch, torch.distributed as td, os, time\nimport jupyter_dist as dist\n"
BEGIN += "dist.init()\nkept = [dist.rank()]\n"


def waits_in(text: str, act: Callable[[RunFolder], Any], *, ranks: int = 1) -> threading.Thread:
    """Call `act` in a thread as soon as so many ranks of the newest run have printed the text."""
    known = {folder.id for folder in runs()}

    def watch() -> None:
        from jupyter_dist.conformance.deadlines import wait_until

        def printed() -> RunFolder | None:
            for folder in runs():
                if folder.id in known:
                    continue
                logs = (folder.rank(0, rank).output for rank in folder.ranks(0))
                if sum(text in log.read_text() for log in logs if log.exists()) >= ranks:
                    return folder
            return None

        folder = wait_until(printed, f"the line {text!r}")
        assert folder is not None
        act(folder)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.needs("torch")
def test_the_process_group_stays_open_between_cells(notebook: Notebook) -> None:
    assert notebook.results(BEGIN + SUM, "--session -np 2") == [2.0, 2.0]
    assert notebook.results(SUM) == [2.0, 2.0]


@pytest.mark.needs("torch")
def test_the_others_leave_their_collective_when_a_rank_raises(notebook: Notebook) -> None:
    notebook.cell(BEGIN, "--session -np 2")
    watch = Stopwatch()
    error = notebook.fails("if dist.rank() == 1: raise ValueError('planted')\n" + SUM)
    assert watch.under(3)
    assert isinstance(error, RunFailed)
    assert str(error).startswith("rank 1")
    assert "planted" in str(error)
    assert notebook.results("kept[0], " + SUM.replace("; float(t)", "") + "\nkept[0], float(t)") == [
        (0, 2.0),
        (1, 2.0),
    ]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("request_", ["interrupt", "stop"])
def test_ranks_leave_a_collective_and_keep_their_state(notebook: Notebook, request_: str) -> None:
    notebook.cell(BEGIN, "--session -np 2")
    pids = [rank["pid"] for rank in find_session("main").about["ranks"]]  # type: ignore[union-attr]
    waits_in("in it", lambda folder: folder.request(request_))
    code = "print('in it', flush=True)\nif dist.rank() == 0:\n    while True: time.sleep(0.1)\n" + SUM
    watch = Stopwatch()
    error = notebook.fails(code)
    assert watch.under(5)
    assert "stopped" in str(error) or "interrupted" in str(error)
    assert notebook.results("kept[0]") == [0, 1]
    assert notebook.results(SUM) == [2.0, 2.0]
    assert [rank["pid"] for rank in find_session("main").about["ranks"]] == pids  # type: ignore[union-attr]


@pytest.mark.needs("torch")
def test_ranks_that_all_wait_for_each_other_leave(notebook: Notebook) -> None:
    notebook.cell(BEGIN, "--session -np 2")
    pids = [rank["pid"] for rank in find_session("main").about["ranks"]]  # type: ignore[union-attr]
    waits_in("in it", lambda folder: folder.request("interrupt"))
    watch = Stopwatch()
    notebook.fails("print('in it', flush=True)\ntd.recv(torch.ones(1), src=1 - dist.rank())")
    assert watch.under(5)
    assert notebook.results("kept[0], dist.rank()") == [(0, 0), (1, 1)]
    assert [rank["pid"] for rank in find_session("main").about["ranks"]] == pids  # type: ignore[union-attr]


def test_an_interrupt_is_a_keyboard_interrupt_in_every_rank(notebook: Notebook) -> None:
    notebook.cell("import time; seen = []", "--session -np 2")
    waits_in("in it", lambda folder: folder.request("interrupt"), ranks=2)
    notebook.fails(
        "try:\n    print('in it', flush=True)\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n"
        "    seen.append('interrupted')\n    raise"
    )
    assert notebook.results("seen") == [["interrupted"]] * 2


@pytest.mark.needs("torch")
def test_a_dead_rank_is_replaced_and_what_is_gone_is_named(notebook: Notebook) -> None:
    notebook.cell(BEGIN, "--session -np 2")
    error = notebook.fails("if dist.rank() == 1: os.kill(os.getpid(), 9)\n" + SUM)
    assert str(error).startswith("rank 1 failed first")
    assert "SIGKILL" in str(error)
    told = reader.status(next(iter(runs()))).told
    assert told is not None
    assert "rank 1 has ended" in told
    assert "kept" in told
    run = notebook.cell("import jupyter_dist as dist\n[dist.rank(), 'kept' in globals()]")
    assert list(run.results) == [[0, True], [1, False]]
    assert "rank 1 is a fresh process" in notebook.printed
    assert "kept" in notebook.printed
    assert notebook.results(BEGIN + SUM) == [2.0, 2.0]


def test_a_rank_that_exits_by_itself_counts_as_dead(notebook: Notebook) -> None:
    notebook.plain("word = 'sent'")
    notebook.cell("import os; held = 1; word", "--session -np 2")
    error = notebook.fails("if os.environ['RANK'] == '0': os._exit(7)")
    assert "exit code 7" in str(error)
    assert notebook.results("word, 'held' in globals()") == [("sent", False), ("sent", True)]


def test_never_and_all_say_what_starts_again(notebook: Notebook) -> None:
    notebook.cell("import os; held = 1", "--session -np 2")
    notebook.fails("if os.environ['RANK'] == '0': os._exit(7)")
    error = notebook.fails("1", "--session --session-restart never")
    assert "rank 0 of the session has ended" in str(error)
    assert "--session-restart rank" in str(error)
    assert notebook.results("'held' in globals()", "--session --session-restart all") == [False, False]


def test_the_first_cell_says_what_starts_again_and_a_later_cell_may_say_otherwise(notebook: Notebook) -> None:
    exits = "import os\nif os.environ['RANK'] == '0': os._exit(7)"
    notebook.cell("held = 1", "--session -np 2 --session-restart never")
    notebook.fails(exits)
    assert "rank 0 of the session has ended" in str(notebook.fails("1"))
    assert notebook.results("'held' in globals()", "--session --session-restart rank") == [False, True]
    notebook.fails(exits)
    assert "rank 0 of the session has ended" in str(notebook.fails("1"))


@pytest.mark.parametrize(("code", "fails"), [("raise SystemExit(3)", True), ("exit()", False)])
def test_exit_ends_the_cell_and_not_the_rank(notebook: Notebook, code: str, fails: bool) -> None:
    notebook.cell("held = 1", "--session -np 1")
    (notebook.fails if fails else notebook.cell)(code)
    assert notebook.results("held") == [1]


def test_a_timeout_ends_the_cell_and_not_the_session(notebook: Notebook) -> None:
    notebook.cell("import time; held = 1", "--session -np 2")
    error = notebook.fails("time.sleep(1000)", "--session --timeout 1")
    assert "--timeout" in str(error)
    assert notebook.results("held") == [1, 1]


@pytest.mark.parametrize(("time", "both"), [("0.5", False), ("10m", True)])
def test_a_cell_that_hears_nothing_is_killed_with_its_rank(notebook: Notebook, time: str, both: bool) -> None:
    """A short time would hold for rank 1 too, which therefore ends before the stop."""

    def act(folder: RunFolder) -> None:
        if both:
            folder.request("stop")
        until(folder, lambda status: status.ranks[1].state.ended, "the end of rank 1")
        folder.request("kill" if both else "stop")

    notebook.cell("import time, signal, os; held, rank = 1, os.environ['RANK']", "--session -np 2")
    waits_in("in it", act, ranks=2)
    masks = "if rank == '0': signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
    waits = f"print('in it', flush=True)\nif {both} or rank == '0': time.sleep(1000)"
    notebook.fails(masks + waits, f"--session --stop-grace {time}")
    assert notebook.results("'held' in globals()") == [False, True]


def test_an_error_does_not_keep_the_values_of_its_frames(notebook: Notebook) -> None:
    notebook.plain(
        "import weakref\nclass Large: pass\ndef work():\n    global alive\n    large = Large()\n"
        "    alive = weakref.ref(large)\n    error = ValueError()\n    raise error"
    )
    notebook.fails("alive = None\nwork()", "--session -np 1")
    assert notebook.results("alive() is None") == [True]


def test_a_thread_of_an_earlier_cell_writes_to_that_cells_log(notebook: Notebook) -> None:
    first = notebook.cell(
        "import threading\ngo = threading.Event()\ndef late():\n    go.wait(); print('late')\n"
        "thread = threading.Thread(target=late, daemon=True); thread.start()",
        "--session -np 1",
    )
    second = notebook.cell("go.set(); thread.join(); print('own')")
    assert (first.log(0), second.log(0)) == ("late\n", "own\n")


def test_exit_handlers_run_when_the_session_ends(notebook: Notebook, tmp_path: Path) -> None:
    file = tmp_path / "ended"
    notebook.cell(
        f"import atexit, pathlib\natexit.register(pathlib.Path({str(file)!r}).touch)", "--session -np 1"
    )
    notebook.cell("1")
    assert not file.exists()
    notebook.plain("%dist close")
    assert file.exists()


def test_a_full_disk_of_the_session_does_not_end_it(notebook: Notebook) -> None:
    notebook.cell("held = 1", "--session -np 1")
    session = find_session("main")
    assert session is not None
    supervisor = session.about["supervisor"]["pid"]
    # For the supervisor, the disk has room for small files only. That leaves out the files with all names.
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
    files = [session.path / name for name in (place.ABOUT, place.NAMES)]
    notebook.cell("for number in range(500): globals()[f'name_of_rank_{number}'] = held")
    assert notebook.results("held, name_of_rank_499") == [(1, 1)]
    # While the cell runs, the supervisor may write a file that is small enough.
    assert not any(b"name_of_rank" in file.read_bytes() for file in files)


@pytest.mark.needs("torch")
def test_the_dead_supervisor_takes_its_ranks_along(notebook: Notebook, wait_for: Callable[..., Any]) -> None:
    notebook.cell("held = 1", "--session -np 2")
    about = find_session("main").about  # type: ignore[union-attr]
    os.kill(about["supervisor"]["pid"], signal.SIGKILL)
    wait_for(lambda: find_session("main") is None, "the end of the session")
    for rank in about["ranks"]:
        wait_for(lambda pid=rank["pid"]: not Path(f"/proc/{pid}/exe").exists(), "the end of a rank")
    assert notebook.results("'held' in globals()", "--session -np 2") == [False, False]


def test_the_state_of_a_run_names_the_ranks_that_ran_it(notebook: Notebook) -> None:
    notebook.cell("import os", "--session -np 3")
    run = notebook.cell("int(os.environ['RANK'])", "--session --ranks 0,2")
    assert (run.results[0], run.results[2]) == (0, 2)
    assert reader.status(run.folder).state is State.SUCCEEDED
    assert not (run.folder.rank(0, 1).path / layout.OUTPUT).exists()


@pytest.mark.needs("torch")
def test_the_group_opens_again_after_one_rank_could_not_open_its_own(notebook: Notebook) -> None:
    notebook.cell(BEGIN.replace("dist.init()\n", ""), "--session -np 2")
    alone = "store=td.HashStore(), rank=0, world_size=2, timeout=timedelta(seconds=1)"
    opens = f"from datetime import timedelta\nif kept == [1]: td.init_process_group('gloo', {alone})"
    assert "rank 1 failed in init_process_group" in str(notebook.fails(opens))
    assert notebook.results(f"dist.init()\n{SUM}") == [2.0, 2.0]


@pytest.mark.needs("torch")
def test_collectives_are_counted_from_one_in_a_group_that_was_opened_again(notebook: Notebook) -> None:
    notebook.cell(f"{BEGIN}{SUM}", "--session -np 2")
    notebook.fails(f"{SUM}\nraise ValueError('planted')")
    run = notebook.cell(f"{SUM}\n{SUM}")
    for rank in (0, 1):
        told = reader.last_events(run.folder.rank(0, rank), "collectives")[0]
        assert [(number, name) for _, number, name, *_ in told["calls"] if name == "all_reduce"] == [
            (1, "all_reduce"),
            (2, "all_reduce"),
        ]
        assert "barrier" not in str(told)


@pytest.mark.needs("torch")
def test_an_object_with_the_old_process_group_is_named(notebook: Notebook) -> None:
    wrap = "m = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))\n"
    wrap += "group = td.new_group([0, 1])"
    notebook.cell(f"{BEGIN}{wrap}", "--session -np 2")
    notebook.fails("if dist.rank() == 0: raise ValueError('planted')\n" + SUM)
    again = "m = DistributedDataParallel(m.module)"
    run = notebook.cell("1")
    assert again in run.log(0)
    assert again in str(notebook.fails("m(torch.ones(1, 2)).sum().backward()"))
    error = str(notebook.fails("td.get_backend(group)"))
    assert "make the group, its DeviceMesh and the model again" in error
    notebook.cell("from torch.nn.parallel import DistributedDataParallel\n" + again)
    notebook.cell("m(torch.ones(1, 2)).sum().backward()")


@pytest.mark.needs("torch")
def test_a_model_trains_again_while_something_refers_to_its_old_wrapper(notebook: Notebook) -> None:
    wrap = "from torch.nn.parallel import DistributedDataParallel\nmodel = torch.nn.Linear(2, 1)\n"
    wrap += "m = DistributedDataParallel(model)\nreferring = [m]"
    notebook.cell(f"{BEGIN}{wrap}", "--session -np 2")
    notebook.fails(
        "y = m(torch.ones(1, 2))\nif dist.rank() == 0: raise ValueError('planted')\ny.sum().backward()"
    )
    again = "m = DistributedDataParallel(model)\nmodel.zero_grad()\n"
    again += "m(dist.rank() * torch.ones(1, 2)).sum().backward()\nmodel.weight.grad.tolist()"
    assert notebook.results(again) == [[[0.5, 0.5]]] * 2
    error = notebook.fails("m = referring[0]\nm(torch.ones(1, 2))")
    assert "belongs to a process group that was closed" in str(error)
    assert notebook.results("with torch.no_grad(): held = m(torch.ones(1, 2))\nheld.shape[0]") == [1, 1]


@pytest.mark.needs("torch", "accelerate")
def test_the_process_group_of_accelerate_opens_again_by_itself(notebook: Notebook) -> None:
    begin = "import torch\nfrom accelerate import Accelerator\nmodel = torch.nn.Linear(2, 1)\n"
    step = "accelerator = Accelerator(cpu=True)\nm = accelerator.prepare(model)\nmodel.zero_grad()\n"
    step += (
        "m((accelerator.process_index + 1) * torch.ones(1, 2)).sum().backward()\nmodel.weight.grad.tolist()"
    )
    mean = [[[1.5, 1.5]], [[1.5, 1.5]]]
    assert notebook.results(begin + step, "--session -np 2") == mean
    notebook.fails("if accelerator.process_index == 1: raise ValueError('planted')\n" + step)
    assert notebook.results(step) == mean


@pytest.mark.needs("torch", "accelerate")
def test_the_process_group_of_a_partial_state_opens_again_by_itself(notebook: Notebook) -> None:
    """TrainingArguments of transformers make one, before there is an Accelerator."""
    begin = "import torch\nfrom accelerate import PartialState\nstate = PartialState(cpu=True)\n"
    total = "total = torch.ones(1)\ntorch.distributed.all_reduce(total)\ntotal.item()"
    assert notebook.results(begin + total, "--session -np 2") == [2.0, 2.0]
    notebook.fails("if state.process_index == 1: raise ValueError('planted')\n" + total)
    assert notebook.results(total) == [2.0, 2.0]


def test_a_traceback_names_the_cell_of_a_function_that_an_earlier_cell_has_sent(notebook: Notebook) -> None:
    notebook.plain("def risky(fails):\n    if fails:\n        raise ValueError('planted')")
    notebook.cell("risky(False)", "--session -np 1")
    notebook.fails("risky(True)")
    rank = max(runs(), key=lambda run: run.id).rank(0, 0)
    frames = json.loads(rank.error.read_bytes())["frames"]
    assert [(frame["label"], frame["line"]) for frame in frames] == [("In[1]", 2), ("In[1]", 3)]
    assert 'File "In[1]", line 3, in risky' in rank.output.read_text()


@pytest.mark.needs("torch")
def test_a_rank_that_dies_between_cells_is_replaced(notebook: Notebook, wait_for: Callable[..., Any]) -> None:
    notebook.cell(BEGIN, "--session -np 2")
    session = find_session("main")
    assert session is not None
    os.kill(session.about["ranks"][1]["pid"], signal.SIGKILL)

    def is_noticed() -> bool:
        found = find_session("main")
        return found is not None and found.about["ranks"][1]["state"] != "running"

    wait_for(is_noticed, "the session's note of the rank's end")
    assert notebook.results(BEGIN + SUM) == [2.0, 2.0]
    assert "rank 1 is a fresh process" in notebook.printed


def test_processes_of_a_cell_are_no_ranks_of_the_session(notebook: Notebook) -> None:
    nested = "import jupyter_dist\ndef f(): return 5\nprint(list(jupyter_dist.run(f, np=1).results))"
    run = notebook.cell(
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {nested!r}], check=True)\n1",
        "--session -np 1",
    )
    assert "[5]" in run.log(0)
    assert notebook.results("2") == [2]


@pytest.mark.needs("torch")
def test_a_group_that_the_user_has_opened_is_closed_after_a_failure(notebook: Notebook) -> None:
    begin = "import torch, torch.distributed as td, os\ntd.init_process_group('gloo')\n"
    notebook.cell(begin, "--session -np 2")
    notebook.fails("if td.get_rank() == 1: raise ValueError('planted')\n" + SUM)
    events = next(iter(runs())).rank(0, 0).events.read_text()
    assert "Open it again with init_process_group()" in events
    assert notebook.results("td.is_initialized()") == [False, False]
    assert notebook.results(begin + SUM) == [2.0, 2.0]


def test_a_cell_whose_folder_is_gone_is_skipped(notebook: Notebook, wait_for: Callable[..., Any]) -> None:
    notebook.cell("import time, pathlib; held = 1", "--session -np 1")
    gate = Path("gate").absolute()
    waits = f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\n"
    first = notebook.cell(waits, "--session --detach")
    gone = notebook.cell("held", "--session --detach").folder.path

    def is_gone() -> bool:
        shutil.rmtree(gone, ignore_errors=True)  # the supervisor may be writing a heartbeat
        return not gone.exists()

    wait_for(is_gone, "the end of the folder")
    gate.touch()
    assert first.wait().state == "succeeded"
    assert notebook.results("held") == [1]
