"""A rank, a guard or a supervisor is killed: the rest of the run ends, and nothing is left running."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from jupyter_dist.errors import LaunchError
from jupyter_dist.job import State
from jupyter_dist.launch import template
from jupyter_dist.record import reader
from jupyter_dist.record.failures import failures
from jupyter_dist.worker import payload as container
from tests.conftest import run_processes
from tests.rigs.launching import ended, logs, open_files, rank_pids
from tests.rigs.local_runs import UP, children_of, gone, run, start, supervisor_pid
from tests.rigs.stopwatch import Stopwatch, WaitFor


def test_a_killed_rank_takes_the_others_down_and_leaves_all_it_wrote() -> None:
    source = """
import time
import jupyter_dist as dist
for step in range(10**9):
    dist.log(loss=1 / (step + 1), step=step)
    print("line", step)
    if step == 1000:
        print("up")
    time.sleep(0 if step < 1000 else 0.001)
"""
    folder = start(source)
    pids = rank_pids(folder)
    os.kill(pids[1], signal.SIGKILL)
    watch = Stopwatch()
    status = ended(folder)
    assert watch.under(5)
    assert (status.state, status.reason) == (State.FAILED, "rank 1 was ended by SIGKILL")
    assert gone(*pids)
    (error, *_) = failures.failures(folder)
    assert (error.rank, error.kind, error.signal) == (1, "signal", signal.SIGKILL)
    assert error.peak_memory_bytes is not None
    assert error.peak_memory_bytes > 1 << 20
    lines = [line for line in logs(folder, 1) if line != "up"]
    assert len(lines) > 1000
    assert lines == [f"line {step}" for step in range(len(lines))]
    steps = [
        event.data["step"] for event in reader.events(folder) if event.kind == "metric" and event.rank == 1
    ]
    assert steps == list(range(len(steps)))
    assert len(steps) - len(lines) in (0, 1)


@pytest.mark.parametrize("warm", [False, True])
def test_a_killed_supervisor_takes_its_ranks_and_their_subprocesses_with_it(
    warm: bool, wait_for: WaitFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    source = f"""
import os, subprocess, sys, time
p = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open({str(child)!r} + os.environ["RANK"], "w").write(str(p.pid))
print("up")
time.sleep(600)
"""
    monkeypatch.setattr(template, "wanted", lambda: warm)
    folder = start(source, cold=not warm)
    try:
        pids = rank_pids(folder)
        assert reader.status(folder).warm is warm
        children = [int(Path(f"{child}{rank}").read_text()) for rank in (0, 1)]
        os.kill(supervisor_pid(folder), signal.SIGKILL)
        wait_for(lambda: reader.status(folder).state is State.LOST, "the lost state")
        wait_for(lambda: gone(*pids, *children), "the end of the ranks and their subprocesses")
        status = reader.status(folder)
        assert status.reason is not None
        assert "supervisor is gone" in status.reason
        assert [rank.state for rank in status.ranks] == [State.LOST] * 2
        assert logs(folder, 0) == ["up"]
    finally:
        template.close()


def test_what_ranks_leave_running_is_ended_with_the_run(wait_for: WaitFor) -> None:
    source = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
a = subprocess.Popen(sleep)
b = subprocess.Popen(sleep, start_new_session=True)
a.returncode = b.returncode = 0
(a.pid, b.pid)
"""
    folder, status = run(source, np=1)
    assert status.state is State.SUCCEEDED
    pids = container.load(folder.rank(0, 0).result)
    wait_for(lambda: gone(*pids), "their end")


def test_a_killed_guard_is_replaced(wait_for: WaitFor) -> None:
    folder = start(UP)
    pids = rank_pids(folder)
    supervisor = supervisor_pid(folder)

    def guards() -> list[int]:
        return [pid for pid in children_of(supervisor) if pid not in pids]

    (first,) = wait_for(lambda: guards() if len(guards()) == 1 else None, "one guard")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: guards() not in ([], [first]), "another guard")
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: gone(*pids), "the end of the ranks")


def test_ranks_end_even_when_supervisor_and_guard_die_at_once(wait_for: WaitFor) -> None:
    folder = start(UP)
    pids = rank_pids(folder)
    supervisor = supervisor_pid(folder)
    os.kill(supervisor, signal.SIGSTOP)  # it must not replace the guard before its own end
    guard = next(pid for pid in children_of(supervisor) if pid not in pids)
    os.kill(guard, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: gone(*pids), "the end of the ranks")
    assert reader.status(folder).state is State.LOST


def test_a_supervisor_that_cannot_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LaunchError, match="supervisor did not start"):
        start("1")
    assert list(own_folders.iterdir()) == []


BUSY = """
import os
import subprocess
from jupyter_dist.processes import rank_processes as processes

def spawn(argv, env, *rest, original=processes.spawn):
    if env["RANK"] == "2":
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return original(argv, env, *rest)

processes.spawn = spawn
"""


def test_ranks_that_cannot_all_be_started_are_ended(tmp_path: Path) -> None:
    """As where the number of processes is limited."""
    (tmp_path / "sitecustomize.py").write_text(BUSY)
    _, status = run(UP, np=3, env={"PYTHONPATH": str(tmp_path)}, max_restarts=0)
    assert status.state is State.FAILED
    assert status.reason == (
        "rank 2 of 3 could not be started: Resource temporarily unavailable. All were ended."
    )
    assert {rank.state for rank in status.ranks} == {State.STOPPED}


@pytest.mark.parametrize("warm", [False, True])
def test_a_supervisor_that_is_killed_right_after_its_start_leaves_nothing(
    warm: bool, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where a rank was just being forked, or had left its group and had no parent to die with."""
    source = "import os, sys, time\nif os.fork() == 0:\n    os.setsid()\nprint('up')\ntime.sleep(600)"
    monkeypatch.setattr(template, "wanted", lambda: warm)
    try:
        for number in range(8):
            folder = start(source, cold=not warm)
            told = wait_for(
                lambda folder=folder: (
                    folder.supervisor_log.exists()
                    and re.search(r"supervisor (\d+):", folder.supervisor_log.read_text())
                ),
                what="the supervisor",
            )
            time.sleep(number * 0.02)
            os.kill(int(told[1]), signal.SIGKILL)
            wait_for(lambda folder=folder: run_processes(folder.path) == {}, "the end of all of it")
    finally:
        template.close()


def test_a_guard_from_the_store_that_was_killed_is_replaced(
    wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template, "wanted", lambda: True)
    try:
        template.observe({})
        wait_for(lambda: any(map(is_spare, children_of(template._current().pid))), "a supervisor in store")
        folder = start(UP, cold=False)
        pids = rank_pids(folder)
        supervisor = supervisor_pid(folder)
        assert reader.status(folder).warm
        (pipe,) = {link for link in pipes(supervisor) if holders(link) - {supervisor}}
        (guard,) = holders(pipe) - {supervisor}
        assert guard not in children_of(supervisor), "it was forked while nobody waited"
        os.kill(guard, signal.SIGKILL)
        wait_for(lambda: len(children_of(supervisor)) == 3, "another guard")
        os.kill(supervisor, signal.SIGKILL)
        wait_for(lambda: gone(*pids), "the end of the ranks")
    finally:
        template.close()


def is_spare(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text() == "jdist spare\n"
    return False


def pipes(pid: int) -> set[str]:
    """The pipes that a process has open."""
    return {link for link in open_files(pid) if link.startswith("pipe:")}


def holders(link: str) -> set[int]:
    """The processes that have this file or pipe open."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(path) == link:
                found.add(int(path.parts[2]))
    return found
