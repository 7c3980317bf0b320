"""Signals to processes and their groups, while the system gives the pids of ended processes to others."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import run_process, wait_for_exit
from jupyter_dist.processes.rank_processes import PACKAGE_ROOT
from jupyter_dist.processes.umask import current_umask
from jupyter_dist.supervise.backend_process.process import BackendProcess
from jupyter_dist.worker import layout
from jupyter_dist.worker.process_groups import interrupt_rank, poll, reap, reap_killed, signal_if
from jupyter_dist.worker.process_identity import start_ticks
from jupyter_dist.worker.program_output import program_output
from tests.rigs import reused_pids
from tests.rigs.reused_pids import SLEEP, end, guard, lives, start
from tests.rigs.stopwatch import Stopwatch, WaitFor

_LEAVES_A_CHILD = [
    sys.executable,
    "-c",
    "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)",
]


def test_nobody_waits_for_a_process_that_does_not_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an uninterruptible sleep, which is imitated here: no signal arrives."""
    ends = [os.pipe() for _ in range(2)]
    with start() as process:
        backend = BackendProcess(process.pid, ends[0][1], ends[1][0])
        with monkeypatch.context() as deaf:
            deaf.setattr(os, "kill", lambda *_: None)
            deaf.setattr(os, "killpg", lambda *_: None)
            watch = Stopwatch()
            assert backend.end() == -signal.SIGKILL
            assert program_output([*SLEEP[:2], "import time; time.sleep(8)"], 0.1) is None
            assert watch.under(7)
        child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", ""])
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert reap_killed(child) == 0
    assert reap_killed(process.pid) is None, "somebody else has reaped it"
    for own, _ in (ends[0], (ends[1][1], 0)):
        os.close(own)


def test_the_output_of_a_program() -> None:
    said = program_output([sys.executable, "-c", "import sys; print(1); sys.exit(3)"], 60)
    assert said == ("1\n", "", 3)
    holds_the_pipe = "import subprocess; subprocess.Popen(['sleep', '600']); print(2)"
    watch = Stopwatch()
    assert program_output([sys.executable, "-c", holds_the_pipe], 1) is None
    assert watch.under(6)
    with pytest.raises(FileNotFoundError):
        program_output(["no-such-program"], 1)


@pytest.mark.parametrize("how", ["reap", "poll", "backend process"])
def test_the_group_of_a_child_is_killed_before_its_pid_is_free(
    monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor, how: str
) -> None:
    killpg, states = os.killpg, []

    def noted(group: int, signum: int) -> None:
        states.append(Path(f"/proc/{group}/stat").read_text().rsplit(")", 1)[1].split()[0])
        killpg(group, signum)

    monkeypatch.setattr(os, "killpg", noted)
    with start(_LEAVES_A_CHILD) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        of_backend = BackendProcess(leader.pid, os.dup(0), os.dup(0))
        ways: dict[str, Callable[[], Any]] = {
            "reap": lambda: reap(leader.pid),
            "poll": lambda: poll(leader),
            "backend process": of_backend.poll,
        }
        wait_for(lambda: ways[how]() is not None, "the end of the leader")
        assert states == ["Z"], "it was still waiting to be reaped"
        wait_for(lambda: start_ticks(child) is None, "the end of its child")
        if how != "poll":
            leader.returncode = 0
        of_backend._code = 0
        of_backend.end()
        assert states == ["Z"], "nothing is signalled after the reap"


def test_a_running_child_is_neither_reaped_nor_signalled() -> None:
    with start() as process:
        assert reap(process.pid) is None
        assert poll(process) is None
        assert lives(process)
        end(process)
    with pytest.raises(ChildProcessError):
        reap(process.pid)


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_process_that_is_not_a_rank_yet_would_ignore_an_interrupt(has_begun: bool, tmp_path: Path) -> None:
    """It would then go on until its time to save is over, 30 s later."""
    if has_begun:
        (tmp_path / layout.EVENTS).touch()
    handler = "SIG_DFL" if has_begun else "SIG_IGN"
    source = f"import signal, sys; signal.signal(2, signal.{handler}); print(flush=True); sys.stdin.read()"
    with start([sys.executable, "-c", source]) as process:
        assert process.stdout is not None
        process.stdout.readline()
        interrupt_rank(process.pid, str(tmp_path))
        assert wait_for_exit(process) == -(signal.SIGINT if has_begun else signal.SIGTERM)


@pytest.mark.parametrize("case", reused_pids.CASES)
def test_the_next_process_with_the_pid_is_spared(case: str) -> None:
    """Tried where nobody else takes the next pid."""
    own_pids = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
    if run_process([*own_pids, "true"]).returncode != 0:
        pytest.skip("needs the right to make a pid namespace")
    done = run_process([*own_pids, sys.executable, "-m", reused_pids.__name__, case], cwd=PACKAGE_ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("right", [True, False])
def test_a_process_is_signalled_if_it_is_the_right_one(right: bool) -> None:
    with start() as process:
        assert signal_if(process.pid, signal.SIGTERM, lambda _: right) == right
        assert (process.wait(30) == -signal.SIGTERM) if right else lives(process)
        end(process)


def test_a_guard_kills_the_group_of_a_leader_that_has_ended(wait_for: WaitFor) -> None:
    with guard() as watching, start(_LEAVES_A_CHILD) as leader:
        assert watching.stdin is not None
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        watching.stdin.write(f"{leader.pid}\n".encode())
        leader.wait(60)
        watching.stdin.close()
        assert watching.wait(60) == 0
        wait_for(lambda: start_ticks(child) is None, "the end of the child")


def test_the_umask_is_read_while_threads_make_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        done = threading.Event()
        modes: set[int] = set()

        def make() -> None:
            number = 0
            while not done.is_set():
                path = tmp_path / str(number)
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
                modes.add(path.stat().st_mode & 0o777)
                number += 1

        thread = threading.Thread(target=make)
        thread.start()
        found = {current_umask() for _ in range(2000)}
        done.set()
        thread.join()
        assert (found, modes) == ({0o027}, {0o640})
    finally:
        os.umask(before)


def test_the_umask_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Any:
        raise FileNotFoundError

    before = os.umask(0o022)
    try:
        for umask in (0o022, 0o077, 0o007):
            os.umask(umask)
            with monkeypatch.context() as patched:
                patched.setattr("builtins.open", missing)
                assert current_umask() == umask
    finally:
        os.umask(before)
