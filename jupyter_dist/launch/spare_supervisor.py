"""A supervisor, its guard and its ranks, forked before they are needed.

A fork of a process that has imported torch takes about 10 ms. A warm start needs four such forks in a row.
They would be most of the time until the first line. The template therefore forks them while it is idle.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import backends
from ..job import Job
from ..processes import forking
from ..worker import boot
from ..worker.gpus import devices
from ..worker.host.ports import free_ports
from .messages import receive, send

__all__ = ["SpareSupervisor", "fork_supervisor"]


class SpareSupervisor:
    """A fork of this process that waits for its run. It ends with this process, or when it is closed."""

    def __init__(self, ranks: int) -> None:
        """`ranks`: the number of ranks to fork in advance. A run with more ranks forks the others itself."""
        from ..supervise import guard

        self.ranks = ranks
        self._guard = guard.prepare()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._pid = forking.fork(lambda: self._wait(theirs), frozenset({theirs.fileno(), self._guard}))

    def _wait(self, theirs: socket.socket) -> None:
        _detach()
        boot.set_name("jdist spare")
        forking.prepare_ranks(self.ranks)
        _rehearse(self.ranks)
        message = receive(theirs)
        if message is not None:
            theirs.close()
            _supervise(message, self._guard)
        os._exit(0)

    def launch(self, message: Mapping[str, Any]) -> int:
        """Let the fork supervise a run. Returns its pid. Raises OSError if the fork is gone."""
        send(self._socket, message)
        self.close()
        return self._pid

    def close(self) -> None:
        self._socket.close()
        # Only the supervisor may have this end of the pipe: the guard waits until it closes.
        os.close(self._guard)


def fork_supervisor(message: Mapping[str, Any]) -> int:
    """Fork a supervisor for a run. Returns its pid."""

    def child() -> None:
        _detach()
        _supervise(message, None)
        os._exit(0)

    return forking.fork(child)


def _detach() -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _rehearse(ranks: int) -> None:
    """Do once what a supervisor of ranks here does before they start, with no effect: see `forking`."""
    forking.adopt(dict(os.environ))
    told = Job("", "local", ranks, 0.0, "", "", "").to_json()
    with contextlib.suppress(Exception):  # the supervisor of a run reports what is wrong
        backends.load("local").request(Job.from_json(json.loads(json.dumps(told))))
        devices.forget_none()
        free_ports(2 + ranks)


def _supervise(message: Mapping[str, Any], guard: int | None) -> None:
    from ..supervise import supervisor

    os.umask(message["umask"])
    forking.adopt(message["env"])
    folder, cold = Path(message["launch"]), message["cold"]
    supervisor.supervise(folder, warm=not cold, why_cold=cold, prepared=guard)
