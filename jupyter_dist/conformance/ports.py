"""TCP ports for what tests start. No two tests get the same one, whichever processes they run in.

A server binds its port seconds after it was given it, and the rank of a cell does so only once it runs. So a
port is held by a lock for as long as the process that asked lives. The kernel gives no port of this range to
outgoing connections, which get those from 32,768 on (`worker.host.ports`). jupyter-dist gives none of them to
ranks, which get those from 15,000 on. Nor is Ray's 10,001 among them: every node of a Ray keeps it for the
server of Ray's clients, though only the head has one, and refuses to start if another part is given it.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

__all__ = ["take_port"]

_FIRST, _END = 10_100, 15_000
_HELD: list[int] = []


def take_port() -> int:
    """Return a port that nothing listens at. Nobody else who asks here gets it while this process lives.

    Raises RuntimeError if all are taken.
    """
    locks = Path(tempfile.gettempdir()) / f"jupyter-dist-ports-{os.geteuid()}"
    locks.mkdir(mode=0o700, exist_ok=True)
    for port in random.SystemRandom().sample(range(_FIRST, _END), _END - _FIRST):
        lock = os.open(locks / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _take(lock) and _is_free(port):
            _HELD.append(lock)
            return port
        os.close(lock)
    raise RuntimeError(f"no port from {_FIRST} to {_END - 1} is free")


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
