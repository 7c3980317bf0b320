"""Forks of a process that has imported the libraries but has run no user code: supervisors and ranks.

Only the template process and its forks are warm. A kernel must not call functions of this module.
"""

from __future__ import annotations

import contextlib
import functools
import json
import linecache
import os
import signal
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Set
from typing import Any

from ..worker import boot, random_state
from ..worker.output import events
from ..worker.process_groups import reap_killed
from .umask import current_umask

__all__ = ["adopt", "dismiss_ranks", "fork", "fork_rank", "is_warm", "mark_warm", "prepare_ranks", "threads"]

_inherited: frozenset[int] | None = None
"""Descriptors that imports have opened and that stay open in forks; None in a process that is not warm."""
_spares: list[tuple[int, int]] = []
"""Ranks that were forked in advance: the pid, and the pipe on which the rank waits."""
_OURS = __name__.partition(".")[0]
_SEEDING = (
    *("torch.random", "torch.cuda", "torch.cuda.random", "torch.mtia", "torch.xpu", "torch.xpu.random"),
    *(f"{_OURS}.launch.{name}" for name in ("template", "spare_supervisor")),
    *(f"{_OURS}.worker.{name}" for name in ("__main__", "rank.cell", "settings", "settings.seeds")),
    f"{_OURS}.worker.import_hooks",
    f"{_OURS}.worker.random_state",
    __name__,
)
"""Modules whose text each rank reads: torch stores the stack of a call that seeds, with its lines.

See `_lazy_call` in torch/cuda/__init__.py.
"""
_blas: Any = None
"""The BLAS libraries. Their search is as slow as a fork, so the template searches once."""


def threads() -> int:
    """Return the number of threads of this process; 1 if the system does not report it."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def mark_warm(own: Set[int | None]) -> None:
    """Mark this process as warm. All descriptors that are open now, except `own`, stay open in its forks."""
    global _inherited, _blas
    _inherited = frozenset(boot.open_descriptors()) - own
    if "numpy" in sys.modules:
        import numpy.random  # noqa: F401  # loaded lazily, and every rank reseeds it
        import threadpoolctl

        _blas = threadpoolctl.ThreadpoolController().select(user_api="blas")
    for name in _SEEDING:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None:
            linecache.getlines(file)


def is_warm() -> bool:
    return _inherited is not None


def fork(child: Callable[[], None], keep: frozenset[int] = frozenset()) -> int:
    """Fork, and return the child's pid. The child runs `child` and then ends, even after an exception.

    Descriptors 0–2, `keep` and those that imports opened stay open in the child. All others are closed:
    the other end of a socket or pipe may wait until all copies are closed.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        kept = {0, 1, 2} | keep | (_inherited or frozenset())
        for fd in boot.open_descriptors():
            if fd not in kept:
                with contextlib.suppress(OSError):
                    os.close(fd)
        for finalizer in list(getattr(weakref.finalize, "_registry", ())):
            finalizer.detach()  # a finalizer from before the fork is the parent's
        child()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(70)


def prepare_ranks(count: int) -> None:
    """Fork ranks in advance. Each waits until `fork_rank` uses it, and ends with this process."""
    boot.ignore_requests()
    for _ in range(count):
        read, write = os.pipe()
        _spares.append((fork(functools.partial(_wait, read), frozenset({read})), write))
        os.close(read)


def _wait(read: int) -> None:
    random_state.reseed()
    with contextlib.suppress(Exception):  # the rank itself reports what is wrong
        _rehearse()
    with open(read, "rb") as pipe:
        message = pipe.read()
    if not message:
        os._exit(0)
    env, umask, output = json.loads(message)
    os.umask(umask)
    log = os.open(output, os.O_WRONLY | os.O_APPEND)  # for errors before the rank opens its own file
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    _become_rank(env)


def _rehearse() -> None:
    """Do once what a rank does before its cell, with no effect, because no run is known yet.

    The first time costs most: it copies the pages that the fork shares.
    """
    adopt(dict(os.environ))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch.get_num_threads())
    if _blas is not None:
        _blas.limit(limits=1)
    writer = events.EventWriter(os.devnull)
    writer.started("")
    writer.close()


def fork_rank(env: Mapping[str, str], output: str) -> int:
    """Return the pid of a new rank with exactly this environment. It is a fork, possibly made in advance.

    `output`: the file for errors before the rank opens its own file. It exists.
    """
    message = json.dumps([dict(env), current_umask(), output]).encode()
    while _spares:
        pid, write = _spares.pop(0)
        try:
            with open(write, "wb") as pipe:
                pipe.write(message)
            return pid
        except BrokenPipeError:  # somebody has killed it
            os.waitpid(pid, 0)

    def child() -> None:
        random_state.reseed()
        _become_rank(env)

    return fork(child)


def dismiss_ranks() -> None:
    """End the ranks that were forked in advance and are not needed."""
    while _spares:
        pid, write = _spares.pop()
        os.kill(pid, signal.SIGKILL)
        reap_killed(pid)
        os.close(write)


def _become_rank(env: Mapping[str, str]) -> None:
    adopt(env)
    _set_threads(env)
    from ..worker.__main__ import main

    main()


def adopt(env: Mapping[str, str]) -> None:
    """Replace the environment of this process, and update the libraries that have read the old one."""
    for name in os.environ.keys() - env.keys():
        del os.environ[name]
    os.environ.update(env)
    tempfile.tempdir = None
    time.tzset()


def _set_threads(env: Mapping[str, str]) -> None:
    # Libraries read these variables at import. The template imported them earlier, with other values.
    count = int(env["OMP_NUM_THREADS"]) if env.get("OMP_NUM_THREADS", "").isdigit() else None
    torch = sys.modules.get("torch")
    if torch is not None and count:
        torch.set_num_threads(count)
    if _blas is not None:
        chosen = env.get("OPENBLAS_NUM_THREADS", "")
        _blas.limit(limits=int(chosen) if chosen.isdigit() else count or os.cpu_count())
