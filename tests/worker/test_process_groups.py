"""Signals to processes and their groups, while the system gives the pids of ended processes to others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.processes.rank_processes import PACKAGE_ROOT
from jupyter_dist.processes.umask import current_umask
from jupyter_dist.supervise.backend_process.process import BackendProcess
from jupyter_dist.worker.process_groups import poll, reap, reap_killed, signal_if
from jupyter_dist.worker.process_identity import start_ticks
from jupyter_dist.worker.program_output import program_output
from tests.rigs.stopwatch import Stopwatch, WaitFor

_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_SLEEP = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
_LEAVES_A_CHILD = [
    sys.executable,
    "-c",
    "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)",
]


def started(command: list[str] = _SLEEP) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True, bufsize=0)


def test_nobody_waits_for_a_process_that_does_not_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an uninterruptible sleep, which is imitated here: no signal arrives."""
    ends = [os.pipe() for _ in range(2)]
    with started() as process:
        backend = BackendProcess(process.pid, ends[0][1], ends[1][0])
        with monkeypatch.context() as deaf:
            deaf.setattr(os, "kill", lambda *_: None)
            deaf.setattr(os, "killpg", lambda *_: None)
            watch = Stopwatch()
            assert backend.end() == -signal.SIGKILL
            assert program_output([*_SLEEP[:2], "import time; time.sleep(8)"], 0.1) is None
            assert watch.under(7)
        assert reap_killed(os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", ""])) == 0
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


class Strangers:
    """Processes that have the pid of one that has ended."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[bytes]] = []

    def take(self, pid: int) -> subprocess.Popen[bytes]:
        for _ in range(50):
            try:
                _LAST_PID.write_text(str(pid - 1))
            except OSError:
                pytest.skip("needs the right to choose the next pid")
            stranger = started()
            self.all.append(stranger)
            if stranger.pid == pid:
                assert stranger.stdout is not None
                stranger.stdout.readline()
                return stranger
        raise AssertionError(f"other processes always took {pid}")


@pytest.fixture
def strangers() -> Iterator[Strangers]:
    made = Strangers()
    yield made
    for process in made.all:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[bytes]) -> int:
    """End a process and reap it. Its pid is free then."""
    process.kill()
    process.communicate()
    return process.pid


def lives(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


@pytest.mark.parametrize("how", ["reap", "poll", "backend process"])
def test_the_group_of_a_child_is_killed_before_its_pid_is_free(
    monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor, how: str
) -> None:
    killpg, states = os.killpg, []

    def noted(group: int, signum: int) -> None:
        states.append(Path(f"/proc/{group}/stat").read_text().rsplit(")", 1)[1].split()[0])
        killpg(group, signum)

    monkeypatch.setattr(os, "killpg", noted)
    with started(_LEAVES_A_CHILD) as leader:
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
    with started() as process:
        assert reap(process.pid) is None
        assert poll(process) is None
        assert lives(process)
        ended(process)
    with pytest.raises(ChildProcessError):
        reap(process.pid)


def test_a_signal_does_not_reach_the_next_process_with_the_pid(strangers: Strangers) -> None:
    """The process ends after it was looked up, and before it is signalled."""
    process = started()
    found: list[subprocess.Popen[bytes]] = []

    def is_right(pid: int) -> bool:
        found.append(strangers.take(ended(process)))
        return True

    with pytest.raises(ProcessLookupError):
        signal_if(process.pid, signal.SIGKILL, is_right)
    assert lives(found[0])


@pytest.mark.parametrize("right", [True, False])
def test_a_process_is_signalled_if_it_is_the_right_one(right: bool) -> None:
    with started() as process:
        assert signal_if(process.pid, signal.SIGTERM, lambda _: right) == right
        assert (process.wait(30) == -signal.SIGTERM) if right else lives(process)
        ended(process)


_GUARD = "from jupyter_dist.worker.process_groups import guard_groups; guard_groups(0)"


def guard() -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    command = [sys.executable, "-c", _GUARD]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=env, bufsize=0)


def test_a_guard_spares_the_next_process_with_the_pid_of_a_rank(
    strangers: Strangers, wait_for: WaitFor
) -> None:
    with guard() as watching, started() as rank, started() as other:
        assert watching.stdin is not None
        watching.stdin.write(f"{rank.pid} {other.pid}\n".encode())
        # The guard has read the line when the pipe is empty, and then names itself.
        wait_for(lambda: _is_read(watching), "the guard")
        stranger = strangers.take(ended(rank))
        watching.stdin.close()
        assert watching.wait(60) == 0
        assert other.wait(60) == -signal.SIGKILL
        assert lives(stranger)


def test_a_guard_kills_the_group_of_a_leader_that_has_ended(wait_for: WaitFor) -> None:
    with guard() as watching, started(_LEAVES_A_CHILD) as leader:
        assert watching.stdin is not None
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        watching.stdin.write(f"{leader.pid}\n".encode())
        leader.wait(60)
        watching.stdin.close()
        assert watching.wait(60) == 0
        wait_for(lambda: start_ticks(child) is None, "the end of the child")


def _is_read(watching: subprocess.Popen[bytes]) -> bool:
    """Return whether the guard waits for the next line: it has read the pipe empty and sleeps in `read`."""
    import fcntl
    import struct
    import termios

    assert watching.stdin is not None
    left = struct.unpack("i", fcntl.ioctl(watching.stdin.fileno(), termios.FIONREAD, b"\0" * 4))[0]
    asleep = (
        Path(f"/proc/{watching.pid}/wchan").read_text() or Path(f"/proc/{watching.pid}/syscall").read_text()
    )
    named = Path(f"/proc/{watching.pid}/comm").read_text() == "jdist guard\n"
    return left == 0 and named and "pipe" in asleep


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
