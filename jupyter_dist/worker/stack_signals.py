"""The signals that make a rank write its stacks, and which of them a rank gets.

faulthandler answers a signal. The kernel restarts most system calls after it, and Python restarts its own
waits, but `sleep`, `usleep` and `nanosleep` of C code return early
(https://man7.org/linux/man-pages/man7/signal.7.html). The program would then do something else than without
the request. So such a rank gets no signal, and its `stacks.txt` says why. The rank's thread then writes the
stacks (stacks_file.py).
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import time

from . import layout

__all__ = ["ALL_STACKS_SIGNAL", "IN_C_SLEEP", "NOTE", "STACK_SIGNAL", "ignore", "is_unanswered", "signal_for"]

STACK_SIGNAL: int = getattr(signal, "SIGRTMIN", signal.SIGUSR2) + (7 if hasattr(signal, "SIGRTMIN") else 0)
"""The signal that makes a rank write its stacks.

It is a real-time signal, because user code and launchers use SIGUSR1 and SIGUSR2.
"""
ALL_STACKS_SIGNAL: int = STACK_SIGNAL + (1 if hasattr(signal, "SIGRTMIN") else 0)
"""The signal that makes a rank write the stacks of all threads without the GIL. Only for a rank that has it
held for long: where another thread runs Python code, the signal can crash the rank."""
IN_C_SLEEP = "a sleep in C code (its Python line is unknown: to ask for it would end the sleep)"
_ONE_THREAD = "Stack (most recent call first):\n"
"""What faulthandler writes before the stack of one thread."""
_ASKED = "Somebody asks for the stacks.\n"
NOTE = f"{_ONE_THREAD}  File ???, line ??? in {IN_C_SLEEP}\n"
_ANSWERS_IN_S = 0.5
"""The thread of a rank looks every 0.1 s. After this time it does not get the GIL."""
_TAIL = 1 << 16
_NANOSLEEP, _CLOCK_NANOSLEEP = {"x86_64": (35, 230), "aarch64": (101, 115)}.get(platform.machine(), (-1, -1))
_ABSOLUTE = 1
"""TIMER_ABSTIME: Python sleeps until a time, and sleeps again after a signal. `sleep` of C does not."""


def ignore() -> None:
    """Ignore these signals in this process, and in ranks that it starts until they set handlers.

    Somebody may ask for the stacks before a rank can answer, and the usual action is the process's end.
    """
    for signum in (STACK_SIGNAL, ALL_STACKS_SIGNAL):
        signal.signal(signum, signal.SIG_IGN)


def signal_for(pid: int) -> int:
    """Return the signal that makes this rank write its stacks; 0 if it would disturb the rank.

    On Linux, the request also becomes a line of the rank's `stacks.txt`, because a thread that just begins
    can take the signal and has no stack yet. Elsewhere, or if the kernel does not tell, the answer is
    STACK_SIGNAL.
    """
    signum = STACK_SIGNAL
    with contextlib.suppress(OSError):
        folder = f"/proc/{pid}/fd"
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # one that the rank has closed meanwhile
                path = os.path.join(folder, name)
                if os.path.basename(os.readlink(path)) != layout.STACKS:
                    continue
                with open(path, "a+b", buffering=0) as file:
                    waits_s = time.time() - os.fstat(file.fileno()).st_mtime
                    if waits_s > _ANSWERS_IN_S and is_unanswered(file.fileno()):
                        signum = ALL_STACKS_SIGNAL
                    file.write((NOTE if _is_in_c_sleep(pid) else _ASKED).encode())
                break
    # Looked at last: a rank that has begun a sleep meanwhile gets no signal either.
    return 0 if _is_in_c_sleep(pid) else signum


def is_unanswered(stacks: int) -> bool:
    """Return whether the stacks of all threads are to follow in this file."""
    size = os.fstat(stacks).st_size
    text = os.pread(stacks, _TAIL, max(0, size - _TAIL))
    return max(text.rfind(_ONE_THREAD.encode()), text.rfind(_ASKED.encode())) > text.rfind(b"hread 0x")


def _is_in_c_sleep(pid: int) -> bool:
    """Return whether the main thread, which would get the signal, is in a sleep that the signal ends."""
    try:
        with open(f"/proc/{pid}/syscall") as file:
            words = file.read().split()
        call = int(words[0])
        return call == _NANOSLEEP or (call == _CLOCK_NANOSLEEP and not int(words[2], 16) & _ABSOLUTE)
    except (OSError, ValueError, IndexError):  # it runs, or the kernel does not tell
        return False
