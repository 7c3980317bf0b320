"""The main program of a pod: it keeps the place for our agent, and ends when nobody needs it any more.

It is sent to the pod as text, so this module stands alone: nothing of our package is there.

The kubelet tells a pod's first process alone when the pod is to end (SIGTERM), which is a shell that passes
it on to this one, and ends whatever is left after a while.
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
"""What the agent has said last is on its way out still when the agent has ended, and ends with this one."""


def agents() -> list[int]:
    """Our agents that run here."""
    found = []
    for entry in os.listdir("/proc"):
        # Processes come and go while we look.
        with contextlib.suppress(OSError):
            if entry.isdigit():
                with open(f"/proc/{entry}/comm") as file:
                    if file.read() == "jdist agent\n":
                        found.append(int(entry))
    return found


def main(idle_s: float) -> None:
    """Returns when the pod is to end, or when there was no agent for `idle_s`."""
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
