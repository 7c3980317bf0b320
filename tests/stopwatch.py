"""Whether something was quick, asked on a machine that may be busy with other things as well."""

from __future__ import annotations

import re
import time
from pathlib import Path

__all__ = ["Stopwatch"]

_PRESSURE = Path("/proc/pressure/cpu")
_ADDED_UP_EVERY_S = 2.5
"""The kernel does so every two seconds (PSI_FREQ in kernel/sched/psi.c)."""


class Stopwatch:
    """Started by making it: `watch = Stopwatch(); do(); assert watch.under(5)`.

    What a limit is about are the waits that we put in: graces, polls, retries. The time in which some process
    of this machine waited for a CPU says nothing of them. So it is not counted, as far as the kernel tells
    it (https://docs.kernel.org/accounting/psi.html). On an idle machine there is next to none.
    """

    def __init__(self) -> None:
        self._began, self._waited_s = time.monotonic(), _waited_s()

    def under(self, limit_s: float) -> bool:
        """Whether less than `limit_s` seconds have passed since the start."""
        passed = time.monotonic() - self._began
        if passed < limit_s:
            return True
        time.sleep(_ADDED_UP_EVERY_S)
        return passed - (_waited_s() - self._waited_s) < limit_s


def _waited_s() -> float:
    try:
        found = re.search(r"^some .*total=(\d+)", _PRESSURE.read_text(), re.MULTILINE)
    except OSError:
        return 0.0  # a kernel that does not count it
    return int(found[1]) / 1e6 if found else 0.0
