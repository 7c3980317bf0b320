"""Whether something was quick, asked on a machine that may be busy with other things as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from jupyter_dist.conformance.deadlines import waited_s

__all__ = ["Stopwatch", "WaitFor"]

WaitFor = Callable[..., Any]
"""Type of the fixture `wait_for`."""

_ADDED_UP_EVERY_S = 2.5
"""The kernel does so every two seconds (PSI_FREQ in kernel/sched/psi.c)."""


class Stopwatch:
    """Started by making it: `watch = Stopwatch(); do(); assert watch.under(5)`.

    What a limit is about are the waits that we put in: graces, polls, retries. The time in which some process
    of this machine waited for a CPU says nothing of them. So it is not counted, as far as the kernel tells
    it (https://docs.kernel.org/accounting/psi.html). On an idle machine there is next to none.
    """

    def __init__(self) -> None:
        self._began, self._waited_s = time.monotonic(), waited_s()

    def under(self, limit_s: float) -> bool:
        """Whether less than `limit_s` seconds have passed since the start."""
        passed = time.monotonic() - self._began
        if passed < limit_s:
            return True
        time.sleep(_ADDED_UP_EVERY_S)
        return passed - (waited_s() - self._waited_s) < limit_s
