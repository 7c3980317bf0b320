"""TCP ports for servers that tests start: no two tests get the same one, whichever processes they run in.

A server that is given a port binds it seconds later, and jupyter_server looks for a free one and binds it
only after that: what was free in between is another test's. So a port is held by a lock for as long as the
process that asked lives, and it is one that neither the kernel gives to outgoing connections (those from
32,768 on, and `worker.free_ports` says which) nor our own runs choose for their ranks (from 15,000 on). Nor
is it Ray's 10,001: every node of a Ray keeps that for the server of Ray's clients, though only the head has
one, and refuses to start where another of its parts is given it.
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
    """A port that nothing listens at, and that nobody else who asks here gets while this process lives."""
    locks = Path(tempfile.gettempdir()) / f"jupyter-dist-ports-{os.geteuid()}"
    locks.mkdir(mode=0o700, exist_ok=True)
    for port in random.SystemRandom().sample(range(_FIRST, _END), _END - _FIRST):
        lock = os.open(locks / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _take(lock) and _is_free(port):
            _HELD.append(lock)
            return port
        os.close(lock)
    raise RuntimeError(f"every port from {_FIRST} to {_END - 1} is taken")


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
