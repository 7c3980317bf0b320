"""The system gives the pid of a process that has ended to another one. Run in a pid namespace of its own.

    unshare --pid --fork --mount-proc python -m tests.rigs.reused_pids CASE

Nobody else takes the next pid there, and no process of the machine gets a pid that was used a moment ago.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

from jupyter_dist.conformance.deadlines import wait_for_exit, wait_until
from jupyter_dist.processes.rank_processes import PACKAGE_ROOT
from jupyter_dist.worker.process_groups import signal_if

__all__ = ["CASES", "SLEEP", "end", "guard", "lives", "start"]

SLEEP = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_GUARD = "from jupyter_dist.worker.process_groups import guard_groups; guard_groups(0)"


def start(command: list[str] = SLEEP) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True, bufsize=0)


def end(process: subprocess.Popen[bytes]) -> int:
    """End a process and reap it. Its pid is free then."""
    process.kill()
    process.communicate()
    return process.pid


def lives(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def guard() -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    return subprocess.Popen([sys.executable, "-c", _GUARD], stdin=subprocess.PIPE, env=env, bufsize=0)


def _take(pid: int) -> subprocess.Popen[bytes]:
    """Start a process with this pid."""
    _LAST_PID.write_text(str(pid - 1))
    stranger = start()
    assert stranger.pid == pid
    assert stranger.stdout is not None
    stranger.stdout.readline()
    return stranger


def _signal() -> None:
    """The process ends after it was looked up, and before it is signalled."""
    process = start()
    found: list[subprocess.Popen[bytes]] = []

    def is_right(pid: int) -> bool:
        found.append(_take(end(process)))
        return True

    try:
        signal_if(process.pid, signal.SIGKILL, is_right)
    except ProcessLookupError:
        assert lives(found[0])
    else:
        raise AssertionError("the next process was signalled")


def _guard() -> None:
    """A rank ends before the guard of its group kills the groups that are left."""
    watching, rank, other = guard(), start(), start()
    assert watching.stdin is not None
    watching.stdin.write(f"{rank.pid} {other.pid}\n".encode())
    # The guard has read the line when the pipe is empty, and then names itself.
    wait_until(lambda: _is_read(watching), "the guard")
    stranger = _take(end(rank))
    watching.stdin.close()
    assert wait_for_exit(watching) == 0
    assert wait_for_exit(other) == -signal.SIGKILL
    assert lives(stranger)


def _is_read(watching: subprocess.Popen[bytes]) -> bool:
    """Return whether the guard waits for the next line: it has read the pipe empty and sleeps in `read`."""
    assert watching.stdin is not None
    left = struct.unpack("i", fcntl.ioctl(watching.stdin.fileno(), termios.FIONREAD, b"\0" * 4))[0]
    asleep = (
        Path(f"/proc/{watching.pid}/wchan").read_text() or Path(f"/proc/{watching.pid}/syscall").read_text()
    )
    named = Path(f"/proc/{watching.pid}/comm").read_text() == "jdist guard\n"
    return left == 0 and named and "pipe" in asleep


CASES = {"signal": _signal, "guard": _guard}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
