"""The main program of a pod: it keeps the pod for our agent, and ends when nobody needs it any more.

The pod receives this module as text, so it imports nothing of our package.

To end a pod, the kubelet sends SIGTERM only to the pod's first process. That is a shell, which forwards the
signal to this program. The kubelet kills the rest after a while.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

__all__ = ["agents", "main"]

_LOOK_EVERY_S = 0.2
_SCAN_EVERY_S = 1.0
_LAST_WORDS_S = 0.7
"""Seconds between the agent's end and this program's: the agent's last output is still in transit."""


def agents() -> list[int]:
    """Return the pids of our agents in this pod."""
    found = []
    for entry in os.listdir("/proc"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            if entry.isdigit():
                with open(f"/proc/{entry}/comm") as file:
                    if file.read() == "jdist agent\n":
                        found.append(int(entry))
    return found


def main(idle_s: float) -> None:
    """Keep the pod. Returns when the pod has to end, or when no agent ran for `idle_s`."""
    told: list[int] = []
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda number, _: told.append(number))
    needed = scanned = time.monotonic()
    passed_on = False
    while True:
        now = time.monotonic()
        if now - scanned > _SCAN_EVERY_S or told:
            scanned = now
            there = agents()
            if there:
                needed = now
            if told and not there:
                if passed_on:
                    time.sleep(_LAST_WORDS_S)
                return
            if told and not passed_on:
                passed_on = True
                for agent in there:
                    with contextlib.suppress(OSError):
                        os.kill(agent, signal.SIGTERM)
            if now - needed > idle_s:
                print(f"jupyter-dist: nobody has come back to this pod for {idle_s:g} s", flush=True)
                return
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main(float(sys.argv[1]))
