"""Fork supervisors and ranks from a process that has imported much and run nothing.

Only the template process and its forks are warm. Nothing here may be called in a kernel.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Set
from typing import Any

from ..worker import boot

__all__ = ["adopt", "fork", "fork_rank", "is_warm", "mark_warm", "threads"]

_inherited: frozenset[int] | None = None
"""Descriptors that imports opened and forks keep; None in a process that is not warm."""
_blas: Any = None
"""Finding the BLAS libraries takes as long as forking: done once, by the template."""


def threads() -> int:
    """Threads of this process; 1 where that cannot be told."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def mark_warm(own: Set[int | None]) -> None:
    """From here on this process forks; what is open now, but for its `own` fds, stays open in its forks."""
    global _inherited, _blas
    _inherited = frozenset(_open_fds()) - own
    if "numpy" in sys.modules:
        import numpy.random  # noqa: F401  # loaded lazily, and every rank reseeds it
        import threadpoolctl

        _blas = threadpoolctl.ThreadpoolController().select(user_api="blas")


def is_warm() -> bool:
    return _inherited is not None


def fork(child: Callable[[], None], keep: frozenset[int] = frozenset()) -> int:
    """Fork; returns the child's pid. The child runs `child` and ends, whatever happens.

    It keeps fds 0–2, `keep` and what imports opened; all else (sockets and pipes whose other
    end waits for their closing) is closed.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        kept = {0, 1, 2} | keep | (_inherited or frozenset())
        for fd in _open_fds():
            if fd not in kept:
                with contextlib.suppress(OSError):
                    os.close(fd)
        for finalizer in list(getattr(weakref.finalize, "_registry", ())):
            finalizer.atexit = False  # made before the fork: the parent's to run
        child()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(70)


def fork_rank(env: Mapping[str, str]) -> int:
    """Fork a rank with exactly this environment; returns its pid."""

    def child() -> None:
        adopt(env)
        boot.reseed()
        _set_threads(env)
        from ..worker.__main__ import main

        main()

    return fork(child)


def adopt(env: Mapping[str, str]) -> None:
    """Make this the whole environment, and have what depends on it look again."""
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None
    time.tzset()


def _set_threads(env: Mapping[str, str]) -> None:
    # These variables are read at import, which was long ago and with other values.
    count = int(env["OMP_NUM_THREADS"]) if env.get("OMP_NUM_THREADS", "").isdigit() else None
    torch = sys.modules.get("torch")
    if torch is not None and count:
        torch.set_num_threads(count)
    if _blas is not None:
        chosen = env.get("OPENBLAS_NUM_THREADS", "")
        _blas.limit(limits=int(chosen) if chosen.isdigit() else count or os.cpu_count())


def _open_fds() -> list[int]:
    found = [int(name) for name in os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")]
    # One of them was the listing's own: its number is free again and will be another's.
    return [fd for fd in found if _is_open(fd)]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
