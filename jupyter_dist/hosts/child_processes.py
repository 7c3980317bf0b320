"""The end of child processes of the supervisor, which must not wait for them."""

from __future__ import annotations

import subprocess

from ..worker.process_groups import kill_group

__all__ = ["end"]

_ending: list[subprocess.Popen[bytes]] = []


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, with its group. Repeatable.

    Does not wait: a process in an uninterruptible system call may live on. The next calls collect it.
    """
    if process.poll() is None:
        kill_group(process.pid)
        _ending.append(process)
    _ending[:] = [each for each in _ending if each.poll() is None]
