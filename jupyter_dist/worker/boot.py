"""Turn a fresh or forked process into a rank: files, signals, streams, and its end."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import io
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from . import layout
from .output import events

__all__ = [
    "STACK_SIGNAL",
    "Terminated",
    "die_with_parent",
    "end",
    "end_children",
    "reseed",
    "set_name",
    "start",
]

STACK_SIGNAL: int = getattr(signal, "SIGRTMIN", signal.SIGUSR2) + (7 if hasattr(signal, "SIGRTMIN") else 0)
"""Makes a rank write its stacks. A real-time signal, because user code and launchers use SIGUSR1 and 2."""

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_THREADS_MAY_TAKE_S = 5.0
_AGAIN_S = 0.01
_stacks_fd: int | None = None
_forking = threading.local()
"""Of a thread that forks: the signals that were blocked before it did."""


class Terminated(SystemExit):
    """The supervisor asked this rank to end; `finally` blocks run, then the rank exits."""

    # What the user's code prints of it, it prints of an exit.
    __module__, __qualname__ = "builtins", "SystemExit"


def _libc() -> Any:
    return ctypes.CDLL(None)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (Linux; elsewhere the guard does)."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)


def set_name(name: str) -> None:
    """Name this process in `ps` and `top`; at most 15 characters are kept."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_NAME, name.encode()[:15])


def start(rank_folder: Path, rank: int) -> None:
    """Point fds 0, 1 and 2 at the rank's files and make its signals and streams a rank's."""
    if os.getpgrp() != os.getpid():
        os.setsid()  # a group of its own, so that its subprocesses can be ended with it
    set_name(f"jdist rank {rank}")
    log = os.open(rank_folder / layout.OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for fd in {log, null} - {0, 1, 2}:
        os.close(fd)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    # Line by line into the file: what was printed survives a kill. No buffer below the text
    # layer: it would only be flushed after each line, and copying twice costs a fifth.
    for name, fd in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(fd, "w", closefd=False)
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _line_buffer_c_stdout()
    _signals(rank_folder)
    events.open_writer(str(rank_folder / layout.EVENTS)).started(socket.gethostname(), _gpus(os.environ))


def _gpus(environ: Mapping[str, str]) -> list[str]:
    """The GPUs of this rank: all that it sees, or under a launcher that is not ours the one that is its own
    by the custom of all launchers. Only whoever asks for their use finds out whether they are there."""
    listed = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    seen = [name for name in listed if name and not name.startswith("-")]
    if "JUPYTER_DIST_GPUS" in environ:
        return seen if environ["JUPYTER_DIST_GPUS"] != "0" else []
    own = environ.get("LOCAL_RANK", "0")
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return [own]
    return seen[int(own) : int(own) + 1] or seen[:1]


def _line_buffer_c_stdout() -> None:
    with contextlib.suppress(Exception):  # no such symbol on this platform: C output comes in blocks
        libc = _libc()
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)


def _signals(rank_folder: Path) -> None:
    global _stacks_fd
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    faulthandler.enable(file=2)
    _stacks_fd = os.open(
        rank_folder / layout.STACKS, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    faulthandler.register(STACK_SIGNAL, file=_stacks_fd, all_threads=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {STACK_SIGNAL, signal.SIGTERM, signal.SIGINT})
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise Terminated(128 + signum)


# What the rank forks is no rank, and ends at SIGTERM as any process does. With the rank's handler, a worker
# of `multiprocessing.Pool` would now and then live on: an exception in a callback of Python's own is ignored,
# and Python forgets a signal that comes before it has set itself up after a fork. So SIGTERM waits for that.


def _before_fork() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork_in_parent() -> None:
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)
    except Terminated:  # it came meanwhile; here it would be ignored, so it has to come again
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGTERM))
        again.daemon = True
        again.start()


def _after_fork_in_child() -> None:
    if signal.getsignal(signal.SIGTERM) is _terminate:  # else it is the user's own
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def reseed() -> None:
    """Fresh random state after a fork: otherwise all ranks of all runs draw the same numbers.

    What the notebook's own state has to say comes with the cell: worker/settings/seeds.py.
    """
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.seed()


def _wait_for_threads() -> None:
    """Wait for the threads that Python waits for, and say so where that takes long."""
    waits = threading.Timer(_THREADS_MAY_TAKE_S, _name_threads)
    waits.daemon = True
    if _threads():
        waits.start()
    shutdown = getattr(threading, "_shutdown", None)  # it ends idle pools, too
    if shutdown is not None:
        shutdown()
    else:
        for thread in threading.enumerate():
            if not thread.daemon and thread is not threading.main_thread():
                thread.join()
    waits.cancel()


def _threads() -> list[str]:
    main = threading.main_thread()
    return [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not main]


def _name_threads() -> None:
    names = ", ".join(map(repr, _threads()))
    print(f"note: the cell has ended, but this rank waits for its threads: {names}", file=sys.stderr)


def end_children() -> None:
    """End the processes of `multiprocessing`, for which a rank that was stopped or has failed would wait."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            with contextlib.suppress(Exception):
                child.terminate()


def _run_exit_handlers() -> None:
    run = getattr(atexit, "_run_exitfuncs", None)
    if run is not None:
        run()
    if run is not None and hasattr(threading, "_shutdown"):
        return
    from . import foreign_names  # not before: a rank starts in milliseconds

    for row, names in foreign_names.lost("worker/boot"):
        print(f"note: {foreign_names.note(row, names)}", file=sys.stderr)


def end(code: int, *, orderly: bool, last: Callable[[], None] | None = None) -> NoReturn:
    """End this process at once, after what a normal exit owes the user; `last` is done when all else is.

    Tearing the interpreter down costs half a second with torch; everything it would give back
    the kernel gives back anyway. `orderly` also waits for the user's threads, as Python does.
    """
    try:
        if orderly:
            _wait_for_threads()
        _run_exit_handlers()
    except Terminated as error:
        code = code or int(error.code or 0)
    except BaseException as error:
        print(f"error while the rank ended: {error!r}", file=sys.stderr)
        code = code or 1
    if last is not None:
        with contextlib.suppress(Exception):
            last()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(Exception):
        _libc().fflush(None)
    os._exit(code)
