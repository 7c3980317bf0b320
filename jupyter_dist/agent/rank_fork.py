"""Ranks as forks of their agent. The agent has imported what each rank needs, most of a rank's start time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

__all__ = ["fork_rank"]


def fork_rank(env: Mapping[str, str], code: str, umask: int) -> int:
    """Fork a rank with this environment. Returns its pid. `code`: the rank's first working directory.

    The agent has no threads. The rank closes the agent's descriptors. The agent's objects stay in the rank's
    memory until `os._exit`, so none of them closes a descriptor of the rank.
    """
    # The agent imports these modules before the fork, once for all ranks.
    from ..worker import __main__, api, autolog, payload  # noqa: F401
    from ..worker.rank import cell  # noqa: F401

    pid = os.fork()
    if pid:
        return pid
    try:
        _become_rank(env, code, umask)
    finally:
        os._exit(70)


def _become_rank(env: Mapping[str, str], code: str, umask: int) -> NoReturn:
    from ..worker import __main__, boot, random_state

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for fd in boot.open_descriptors():
        if fd > 2:
            with contextlib.suppress(OSError):
                os.close(fd)
    os.setsid()
    os.umask(umask)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(code)
    sys.argv = [sys.argv[0]]
    random_state.reseed()
    try:
        __main__.main()
    except BaseException:
        # An error of jupyter-dist itself, outside the user's code, must also be in the log.
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(70)
