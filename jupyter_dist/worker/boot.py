"""The start and the end of a rank: its files, signals and streams."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import functools
import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from . import layout, stack_signals, stacks_file
from .output import events
from .stack_signals import ALL_STACKS_SIGNAL, STACK_SIGNAL

__all__ = [
    "QUIET",
    "TO_SAVE_S",
    "Terminated",
    "die_with_parent",
    "end",
    "end_children",
    "flush",
    "hold_requests",
    "ignore_requests",
    "move",
    "open_descriptors",
    "set_name",
    "start",
]

TO_SAVE_S = 30.0
"""Time to save for ranks that want to. Such ranks have a SIGTERM handler. Kubernetes waits as long."""

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_EXIT_MAY_TAKE_S = 5.0
_AGAIN_S = 0.01
_asked = 0
"""The exit code of the last request to end; 0 if there was none."""
_held = False
"""Whether the rank ends by itself, so that a request to end changes nothing."""
_handler_note: Path | None = None
"""The file whose existence says that the rank has its own handler for SIGTERM."""
_forking = threading.local()
"""Per forking thread: the signals that were blocked before the fork."""


QUIET = {"TF_CPP_MIN_LOG_LEVEL": "1"}
"""Variables that the user has not set. Without it, TensorFlow prints ten lines about its connections."""


class Terminated(SystemExit):
    """The supervisor asked this rank to end. `finally` blocks run, then the rank exits."""

    # User code that prints this exception prints a SystemExit.
    __module__, __qualname__ = "builtins", "SystemExit"


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None)


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent dies. Linux only; elsewhere the guard kills it."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the call
            os._exit(1)


def set_name(name: str) -> None:
    """Name this process in `ps` and `top`. At most 15 characters are kept."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_NAME, name.encode()[:15])


def open_descriptors() -> list[int]:
    """Return the open descriptors of this process."""
    found: Iterable[int] = range(4096)
    for listing in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            found = [int(name) for name in os.listdir(listing)]
            break
    # The listing itself used one descriptor, which is closed now. Its number can be reused.
    return [fd for fd in found if _is_open(fd)]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def start(rank_folder: Path, rank: int) -> None:
    """Redirect fds 0, 1 and 2 to the rank's files and set up the rank's signals and streams."""
    if os.getpgrp() != os.getpid():
        os.setsid()  # a process group of its own, so that the rank's subprocesses can be ended with the rank
    set_name(f"jdist rank {rank}")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    _open_output(rank_folder)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null:
        os.close(null)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    # Each line is written to the file at once, so that printed lines survive a kill. There is no buffer below
    # the text layer, because it would be flushed after each line anyway. The second copy would cost a fifth
    # of the time.
    for name, fd in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(fd, "w", closefd=False)
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _line_buffer_c_stdout()
    _signals()
    stacks_file.open_in(rank_folder)
    _open_handler_note(rank_folder)
    _open_events(rank_folder)


def move(rank_folder: Path) -> None:
    """Write all files of this rank to another folder from now on: the next cell of a session begins.

    Requests to end count again, which `hold_requests` has ignored since the last cell.
    """
    flush()
    _open_output(rank_folder)
    stacks_file.open_in(rank_folder)
    _open_handler_note(rank_folder, is_new=True)
    events.close()
    _open_events(rank_folder)
    _take_requests()


def flush() -> None:
    """Write what is still in the buffers of Python's and C's standard streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(Exception):
        _libc().fflush(None)


def _open_output(rank_folder: Path) -> None:
    log = os.open(rank_folder / layout.OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if log not in (1, 2):
        os.close(log)


def _open_events(rank_folder: Path) -> None:
    events.open_writer(str(rank_folder / layout.EVENTS)).started(socket.gethostname(), _gpus(os.environ))


def _gpus(environ: Mapping[str, str]) -> list[str]:
    """List the GPUs of this rank.

    Under jupyter-dist these are all GPUs that the rank sees. Under another launcher it is the GPU with the
    rank's local index, as all launchers arrange it. This function does not check whether the GPUs exist; code
    that measures their use does.
    """
    listed = [name.strip() for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    seen = [name for name in listed if name and not name.startswith("-")]
    if "JUPYTER_DIST_GPUS" in environ:
        return seen if environ["JUPYTER_DIST_GPUS"] != "0" else []
    own = environ.get("LOCAL_RANK", "0")
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return [own]
    return seen[int(own) : int(own) + 1] or seen[:1]


def _line_buffer_c_stdout() -> None:
    with contextlib.suppress(Exception):  # if the platform lacks the symbol, C output is written in blocks
        libc = _libc()
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)


def ignore_requests() -> None:
    """Ignore the signals of requests in this process, and in ranks that it starts until they set handlers.

    Such a signal would otherwise end a rank that has not begun.
    """
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    stack_signals.ignore()


def _signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    _note_handlers()
    faulthandler.enable(file=2)
    ours = {STACK_SIGNAL, ALL_STACKS_SIGNAL, signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )


def _open_handler_note(rank_folder: Path, *, is_new: bool = False) -> None:
    """Say in this folder whether the rank has its own handler. `is_new`: the folder says nothing yet."""
    global _handler_note
    _handler_note = rank_folder / layout.SIGTERM_HANDLER
    handler = signal.getsignal(signal.SIGTERM)
    if not (is_new and handler is _terminate):
        _tell_of_handler(handler)


def _note_handlers() -> None:
    """Write a file when the rank sets its own handler for SIGTERM. A stop then leaves more time to save."""
    rank, original = os.getpid(), signal.signal

    @functools.wraps(original)
    def noting(signalnum: Any, handler: Any) -> Any:
        before = original(signalnum, handler)
        if signalnum == signal.SIGTERM and os.getpid() == rank:
            _tell_of_handler(handler)
        return before

    signal.signal = noting


def _tell_of_handler(handler: Any) -> None:
    if _handler_note is None:
        return
    with contextlib.suppress(OSError):  # on a full disk the rank has the shorter time
        if callable(handler) and handler is not _terminate:
            _handler_note.write_bytes(b"1")
        else:
            _handler_note.unlink(missing_ok=True)


def _terminate(signum: int, frame: FrameType | None) -> None:
    global _asked
    if not _held:
        _asked = 128 + signum
        stacks_file.end()
        raise Terminated(128 + signum)


def hold_requests() -> None:
    """Ignore requests to end until the exit handlers run: the rank already ends, and writes down why.

    Blocking the signals would not suffice, because another thread of the process can receive them. A handler
    of the user stays.
    """
    global _held
    _held = True
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _take_requests() -> None:
    global _asked, _held
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and _held:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _asked, _held = 0, False


# A process that the rank forks is not a rank, and ends at SIGTERM as any process does. With the rank's
# handler, a worker of `multiprocessing.Pool` would sometimes survive: Python ignores an exception in its own
# callbacks. Python also loses a signal that arrives before it has set itself up after a fork. So SIGTERM is
# blocked until then.


def _before_fork() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork_in_parent() -> None:
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)
    except Terminated:
        # The signal arrived during the fork. Python would ignore the exception here, so the rank sends the
        # signal again.
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGTERM))
        again.daemon = True
        again.start()


def _after_fork_in_child() -> None:
    if signal.getsignal(signal.SIGTERM) is _terminate:  # otherwise the handler is the user's own
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _wait_for_threads() -> None:
    """Wait for the threads that Python waits for. Print their names if that lasts more than 5 s."""
    waits = threading.Timer(_EXIT_MAY_TAKE_S, _name_threads)
    waits.daemon = True
    if _threads():
        waits.start()
    shutdown = getattr(threading, "_shutdown", None)  # `_shutdown` also ends idle pools
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


def _name_exit_handlers() -> None:
    print("note: the cell has ended, but this rank still runs its atexit handlers", file=sys.stderr)


def end_children() -> None:
    """End the processes of `multiprocessing`. A rank that was stopped or has failed would wait for them."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            with contextlib.suppress(Exception):
                child.terminate()


def _run_exit_handlers() -> None:
    waits = threading.Timer(_EXIT_MAY_TAKE_S, _name_exit_handlers)
    waits.daemon = True
    run = getattr(atexit, "_run_exitfuncs", None)
    if run is not None:
        with contextlib.suppress(RuntimeError):  # no more threads: the run continues without the note
            waits.start()
        run()
        waits.cancel()
    if run is not None and hasattr(threading, "_shutdown"):
        return
    from . import foreign_names  # imported late, because a rank starts in milliseconds

    for row, names in foreign_names.lost("worker/boot"):
        print(f"note: {foreign_names.note(row, names)}", file=sys.stderr)


def end(code: int, *, orderly: bool, last: Callable[[], None] | None = None) -> NoReturn:
    """End this process at once, after doing what a normal exit does for the user.

    Tearing down the interpreter takes half a second with torch. The kernel frees the same resources anyway.
    With `orderly`, the process first waits for the user's threads, as Python does. `last` is called after
    everything else.
    """
    try:
        _take_requests()
        if orderly:
            _wait_for_threads()
        _run_exit_handlers()
    except Terminated as error:
        code = code or int(error.code or 0)
    except BaseException as error:
        print(f"error while the rank ended: {error!r}", file=sys.stderr)
        code = code or 1
    # Python ignores exceptions of exit handlers, also that of a request to end.
    code = code or _asked
    if last is not None:
        with contextlib.suppress(Exception):
            last()
    with contextlib.suppress(Exception):
        events.close()
    flush()
    os._exit(code)
