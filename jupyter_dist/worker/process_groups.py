"""Process groups of ranks, their end, and a guard that ends them if the process that watches them has died.

The system may give the pid of a process to another one as soon as the parent has reaped it. So nothing here
signals a process or its group after that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import layout, listing
from .process_identity import start_ticks

if TYPE_CHECKING:
    import subprocess

__all__ = [
    "Exit",
    "guard_groups",
    "has_variable",
    "interrupt_rank",
    "kill_all",
    "kill_group",
    "poll",
    "reap",
    "reap_killed",
    "signal_if",
    "spawn",
]

_KILLED_S = 2.0
_CAN_PEEK = hasattr(os, "waitid")
"""macOS lacks this function before Python 3.13. There, the group is killed just after its leader's reap."""


class Exit(NamedTuple):
    """The end of a child process."""

    exit_code: int | None
    signal: int | None
    peak_memory_bytes: int

    @property
    def returncode(self) -> int:
        """Return the exit status as in `subprocess`."""
        return -(self.signal or 0) if self.exit_code is None else self.exit_code


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, log: int, umask: int = -1) -> int:
    """Start a process that leads a group and prints into the descriptor `log`. Returns its pid for `reap`."""
    import subprocess

    process = subprocess.Popen(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        umask=umask,
    )
    process.returncode = 0  # `reap` waits for the process
    return process.pid


def kill_group(pid: int) -> None:
    """Send SIGKILL to every process of a group. Its leader must not be reaped yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def reap(pid: int) -> Exit | None:
    """Reap a child that leads a group, if it has ended, and kill the rest of the group. Does not block.

    Returns the child's end, or None while it runs. Raises ChildProcessError.
    """
    if _CAN_PEEK:
        if not _has_ended(pid):
            return None
        kill_group(pid)
    done, status, usage = os.wait4(pid, os.WNOHANG)
    if not done:
        return None
    if not _CAN_PEEK:
        kill_group(pid)
    code = os.waitstatus_to_exitcode(status)
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Exit(code if code >= 0 else None, -code if code < 0 else None, peak)


def reap_killed(pid: int) -> int | None:
    """Wait up to 2 s for a child that was sent SIGKILL. Returns its wait status; None if there is none.

    A process in an uninterruptible sleep ends only when the sleep does, for example on a lost network disk.
    There is also no status if somebody else has reaped the child.
    """
    until = time.monotonic() + _KILLED_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status
            time.sleep(0.005)
    return None


def poll(process: subprocess.Popen[bytes]) -> int | None:
    """Do what `process.poll()` does. If the process has just ended, also kill the rest of its group."""
    if _CAN_PEEK and process.returncode is None and _has_ended(process.pid):
        kill_group(process.pid)
    return process.poll()


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended, and leave it to be reaped. Raises ChildProcessError."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def interrupt_rank(pid: int, rank_folder: str) -> None:
    """Send SIGINT to a rank. A process that is not a rank yet gets SIGTERM, because it ignores SIGINT.

    It has run nothing, so it has nothing to save. Raises ProcessLookupError.
    """
    is_rank = os.path.exists(os.path.join(rank_folder, layout.EVENTS))
    os.kill(pid, signal.SIGINT if is_rank else signal.SIGTERM)


def signal_if(pid: int, signum: int, is_right: Callable[[int], bool]) -> bool:
    """Signal a process that is no child of this one, if `is_right(pid)`. Returns whether it was signalled.

    Another process may get the pid at any time. It is not signalled if the system has pidfds (Linux 5.3).
    Raises OSError, for example ProcessLookupError.
    """
    try:
        fd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except ProcessLookupError:
        raise
    except OSError:
        fd = None  # an old kernel, or a container without the right
    try:
        if not is_right(pid):
            return False
        if fd is None:
            os.kill(pid, signum)
        else:
            signal.pidfd_send_signal(fd, signum)
        return True
    finally:
        if fd is not None:
            os.close(fd)


def kill_all(is_right: Callable[[int], bool]) -> list[int]:
    """Kill the processes with `is_right(pid)`, except this one and its parent. Returns their pids.

    Kills nothing without /proc.
    """
    killed: list[int] = []
    for pid in listing.numbers("/proc"):
        with contextlib.suppress(OSError):
            if pid not in (os.getpid(), os.getppid()) and signal_if(pid, signal.SIGKILL, is_right):
                killed.append(pid)
    return killed


def has_variable(pid: int, name: str, value: str) -> bool:
    """Return whether a process was started with this variable. Raises OSError if that is unknown."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        return f"{name}={value}".encode() in file.read().split(b"\0")


def guard_groups(read: int) -> str | None:
    """Wait until the other end of a pipe is closed, and kill the groups whose pids are in the last line.

    The process acts as a guard. Returns the last line, or None without a line. A pid that another process has
    got since the line arrived is left alone.
    """
    from .boot import set_name

    with contextlib.suppress(PermissionError):  # the process already has a session of its own
        os.setsid()
    set_name("jdist guard")
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    last, rest = None, b""
    leaders: dict[int, int | None] = {}
    while chunk := os.read(read, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            last = lines[-1].decode()
            pids = {int(word) for word in last.split() if word.isdigit()}
            leaders = {pid: leaders[pid] if pid in leaders else start_ticks(pid) for pid in pids}
    for pid, ticks in leaders.items():
        if start_ticks(pid) in (ticks, None):  # None: the leader has ended, and the group may remain
            kill_group(pid)
    return last
