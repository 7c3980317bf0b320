"""The lines of a launcher's log that may explain a failure, without what our own signal made it print."""

from __future__ import annotations

import re
from pathlib import Path

from ..logs.last_lines import last_lines

__all__ = ["excerpt"]

_LINES = 20
_TRACEBACK = "Traceback (most recent call last):"
_OF_SIGNAL = re.compile(r"(KeyboardInterrupt$|[\w.]*SignalException: Process \d+ got signal: (15|2)$)")
"""The last line of the traceback with which a launcher in Python ends at SIGTERM or SIGINT.

torchrun: https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/multiprocessing/api.py
"""
_ABOUT_SIGNAL = re.compile(r"[Rr]eceived (15|2) death signal|closing signal SIG(TERM|INT)")


def excerpt(path: Path) -> list[str]:
    """Return the last lines of a launcher's log. Empty if it only answered our signal."""
    return _without_our_signal(last_lines(path))[-_LINES:]


def _without_our_signal(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        if _ABOUT_SIGNAL.search(line):
            continue
        kept.append(line)
        if _OF_SIGNAL.match(line):
            begin = next((at for at in reversed(range(len(kept))) if kept[at] == _TRACEBACK), len(kept) - 1)
            if all(line.startswith(" ") for line in kept[begin + 1 : -1]):
                del kept[begin:]
    return kept if any(line.strip() for line in kept) else []
