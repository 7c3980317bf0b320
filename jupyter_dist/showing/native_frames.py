"""Filter that removes the frames of C++ code and of crashed threads from log lines above a failure's report.

The report shows where the rank was. The frames would fill the screen above it.
"""

from __future__ import annotations

import re

from ..text.format import attach_call

__all__ = ["NativeFrames"]

_NATIVE = re.compile(
    r"\s*(frame #\d+: |"
    r"#\d+ \S.* from (\?\?|\S+\.(c|cc|cpp|cu|cxx|h|hpp|S)|<frozen \w+>|"
    r"\S+/(site-packages|jupyter_dist)/\S+)?:\d+$|"
    r"Exception raised from .* \(most recent call first\):$)|"
    r"\[rank\d+\]:\[[EW]\d+ .*(Stack trace of the failed collective|ump debug info|dump the debug info|"
    r"to signal dumping|failure detected by watchdog|\"should dump\" flag)"
)
"""How torch writes the frames of an error in C++, and what its watchdog of NCCL says after the error."""
_CRASH = re.compile(r"Fatal Python error: ")
_DUMP = re.compile(
    r'$|(Current thread|Thread) 0x|  File ".*", line \d+ in |  <no Python frame>|  \.\.\.$|'
    r"Extension modules: |Current thread's C stack trace|  Binary file "
)
"""What faulthandler writes after the error, an empty line included."""


class NativeFrames:
    """Filter of the logs of one attempt."""

    def __init__(self, id: str) -> None:
        """`id`: of the run."""
        self._id = id
        self._crashed: set[int] = set()
        self._told: set[int] = set()

    def take(self, rank: int, plain: str) -> str | None:
        """Return what to show in place of a line. None: the line itself."""
        if _CRASH.search(plain):
            self._crashed.add(rank)
            return None
        if rank in self._crashed and not _DUMP.match(plain):
            self._crashed.discard(rank)
        if rank not in self._crashed and not _NATIVE.match(plain):
            return None
        if rank in self._told or not plain:
            return ""
        self._told.add(rank)
        return f"… its frames are left out here: print({attach_call(self._id)}.log({rank})) shows them"
