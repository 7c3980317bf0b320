"""Warnings of Horovod's stall inspector, which names the ranks that a collective waits for. Pure.

Rank 0 prints them: https://github.com/horovod/horovod/blob/master/horovod/common/stall_inspector.cc
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["missing_ranks"]

_HEADING = "Missing ranks:"
_RANK = re.compile(r"(\d+): \[(.*?)\]?(?: \.\.\.)?\s*$")


def missing_ranks(log: Sequence[str], world_size: int) -> dict[str, list[int]]:
    """Return the ranks that had not submitted a tensor, by the tensor's name, from a warning at a log's end.

    Empty if the log ends otherwise: a rank that prints again waits no longer. Of each rank only the first
    tensor counts, because those behind it wait for it.
    """
    last = next((place for place in range(len(log) - 1, -1, -1) if log[place].strip() == _HEADING), None)
    found: dict[str, list[int]] = {}
    for line in [] if last is None else log[last + 1 :]:
        match = _RANK.match(line)
        if match is None or int(match[1]) >= world_size:
            return {}
        tensor = match[2].split(", ")[0].removeprefix("!")
        if tensor:
            found.setdefault(tensor, []).append(int(match[1]))
    return found
