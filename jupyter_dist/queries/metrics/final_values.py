"""Final metrics of a run: the last value of each metric, averaged over ranks.

A list shows them for hundreds of runs. So only the last kilobytes of each rank's events are read.
A metric that a rank logged earlier is left out. Metrics that `--metric` finds in logs are left out too,
because they need the whole log.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from ...folder import RunFolder
from ...record.logs.last_lines import last_bytes

__all__ = ["final_metrics"]

_TAIL = 8 << 10
_MOST_RANKS = 16
_MOST_LINES = 60
_MOST_NAMES = 40
_OF_NUMBERS = b"0123456789.+-"
_METRIC = b'"metric"'


def final_metrics(folder: RunFolder, attempt: int, world_size: int) -> dict[str, float]:
    """Return by name the mean of the last finite values. If there are many ranks, only some are read.

    Metrics named `system/…` describe machines, not the training, and are left out.
    """
    every = max(1, math.ceil(world_size / _MOST_RANKS))
    found: dict[str, list[float]] = {}
    for rank in range(0, world_size, every):
        for name, value in _last(folder.rank(attempt, rank).events).items():
            found.setdefault(name, []).append(value)
    means = {name: sum(values) / len(values) for name, values in sorted(found.items())[:_MOST_NAMES]}
    return {name: value for name, value in means.items() if math.isfinite(value)}


def _last(path: Path) -> dict[str, float]:
    lines = last_bytes(path, _TAIL)[0].split(b"\n")
    found: dict[str, float] = {}
    seen = set()
    for line in reversed(lines[-_MOST_LINES:]):
        if _METRIC not in line:
            continue
        names = line.translate(None, _OF_NUMBERS)
        if names in seen:
            continue  # the same metrics at an earlier step: most lines are such, and parsing is slow
        seen.add(names)
        try:
            event = json.loads(line)
            values = event["values"].items() if event["kind"] == "metric" else ()
            for name, value in values:
                if name not in found and not name.startswith("system/"):
                    found[name] = float(value)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # a rank may write anything, and the first line may lack its beginning
    return {name: value for name, value in found.items() if math.isfinite(value)}
