"""Identity of a run's supervisor process. Another process may have its pid later."""

from __future__ import annotations

import socket
import time

from ..job import Status
from ..worker.process_identity import boot_id, start_ticks

__all__ = ["SILENCE_S", "boot_id", "start_ticks", "supervised"]

SILENCE_S = 30.0
"""If its heartbeat is older than this, a supervisor on another host counts as dead."""


def supervised(status: Status) -> bool:
    """Return whether the supervisor that wrote this status lives."""
    supervisor = status.supervisor
    if supervisor is None:
        return False
    if supervisor.host != socket.gethostname():
        return time.time() - status.heartbeat < SILENCE_S
    if supervisor.boot_id != boot_id():
        return False
    return start_ticks(supervisor.pid) == supervisor.start_ticks
