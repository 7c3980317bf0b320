"""The file of a rank's stacks, to which the rank appends when somebody asks for them.

Two parts answer a request. faulthandler's signal handler writes the stack of the main thread, also while
another thread holds the GIL. It could not read the stacks of threads that run at that moment: it has no lock,
and a thread that ends would crash the process. So a thread of the rank, which has the GIL, writes them all a
moment later. Where that thread does not get the GIL, no other thread runs Python code, and a second signal
makes the handler write all of them (stack_signals.py).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from time import sleep

from . import layout, stack_signals
from .stack_signals import ALL_STACKS_SIGNAL, STACK_SIGNAL

__all__ = ["end", "on_request", "open_in"]

_LOOK_EVERY_S = 0.1
_fd: int | None = None
_answered = 0
"""The length of the stacks whose request has been answered, and of the mark at their end."""
_ended = False
_told: list[Callable[[], None]] = []


def open_in(rank_folder: Path) -> None:
    """Write the stacks to this folder from now on, whenever somebody asks for them."""
    global _fd, _answered, _ended
    opened = os.open(rank_folder / layout.STACKS, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if _fd is None:
        _fd = opened
        _begin_to_answer(opened)
        faulthandler.register(STACK_SIGNAL, file=_fd, all_threads=False)
        if ALL_STACKS_SIGNAL != STACK_SIGNAL:
            faulthandler.register(ALL_STACKS_SIGNAL, file=_fd, all_threads=True)
    else:
        os.dup2(opened, _fd, inheritable=False)  # the same descriptor, because the handler can write now
        os.close(opened)
    _answered, _ended = 0, False


def on_request(tell: Callable[[], None]) -> None:
    """Call this whenever somebody has asked for the stacks. A thread of its own does so."""
    _told.append(tell)


def _begin_to_answer(stacks: int) -> None:
    """Start the thread that answers requests. It takes no signal, so that the user's code gets them all."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        threading.Thread(target=_answer, args=(stacks,), name="jupyter-dist-stacks", daemon=True).start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answer(stacks: int) -> None:
    global _answered
    while True:
        sleep(_LOOK_EVERY_S)
        with contextlib.suppress(Exception):  # `tell` may fail
            asked = os.fstat(stacks).st_size
            if asked <= _answered:
                continue
            faulthandler.dump_traceback(stacks, all_threads=True)
            size = os.fstat(stacks).st_size
            if size == asked or not stack_signals.is_unanswered(stacks):  # a full disk, or all are written
                _answered = size
            for tell in _told:
                tell()


def end() -> None:
    """Mark the end of the stacks that show where the cell was. A request can come later."""
    global _answered, _ended
    with contextlib.suppress(OSError):
        if _fd is not None and not _ended:
            times = os.fstat(_fd)
            _answered += os.write(_fd, layout.STACKS_END.encode())
            _ended = True
            os.utime(_fd, ns=(times.st_atime_ns, times.st_mtime_ns))
