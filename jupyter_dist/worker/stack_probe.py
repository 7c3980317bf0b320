"""Detection of ranks that a request for their stacks would disturb.

faulthandler answers a signal. The kernel restarts most system calls after it, and Python restarts its own
waits, but `sleep`, `usleep` and `nanosleep` of C code return early
(https://man7.org/linux/man-pages/man7/signal.7.html). The program would then do something else than without
the request. So such a rank gets no signal, and its `stacks.txt` says why. A rank with a thread
that answers requests (rank/collectives.py) then writes its stacks by that thread.
"""

from __future__ import annotations

import contextlib
import os
import platform

from . import layout

__all__ = ["IN_C_SLEEP", "NOTE", "spared"]

IN_C_SLEEP = "a sleep in C code (its Python line is unknown: to ask for it would end the sleep)"
NOTE = f"Current thread 0x0000000000000001 (most recent call first):\n  File ???, line ??? in {IN_C_SLEEP}\n"
_NANOSLEEP, _CLOCK_NANOSLEEP = {"x86_64": (35, 230), "aarch64": (101, 115)}.get(platform.machine(), (-1, -1))
_ABSOLUTE = 1
"""TIMER_ABSTIME: Python sleeps until a time, and sleeps again after a signal. `sleep` of C does not."""


def spared(pid: int) -> bool:
    """Return whether the rank must not be signalled. Then its `stacks.txt` gets a note in place of a stack.

    Linux only. Elsewhere, or if the kernel does not tell, the answer is False.
    """
    if not _is_in_c_sleep(pid):
        return False
    with contextlib.suppress(OSError):
        folder = f"/proc/{pid}/fd"
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # one that the rank has closed meanwhile
                if os.path.basename(os.readlink(f"{folder}/{name}")) == layout.STACKS:
                    with open(os.path.join(folder, name), "a") as file:
                        file.write(NOTE)
                    break
    return True


def _is_in_c_sleep(pid: int) -> bool:
    """Return whether the main thread, which would get the signal, is in a sleep that the signal ends."""
    try:
        with open(f"/proc/{pid}/syscall") as file:
            words = file.read().split()
        call = int(words[0])
        return call == _NANOSLEEP or (call == _CLOCK_NANOSLEEP and not int(words[2], 16) & _ABSOLUTE)
    except (OSError, ValueError, IndexError):  # it runs, or the kernel does not tell
        return False
