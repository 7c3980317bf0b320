"""Resource usage of ranks for the views: kept in memory, extended as hosts measure it, thinned."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from pathlib import Path

from ...errors import InputError
from ...folder import RankFolder, RunFolder
from ...job import rank_count
from ...record import reader
from ...record.growing_file import GrowingFile
from ...record.metrics.usage_points import parse_usage
from ..answers.metrics import RankUsage, Usage, UsageSeries

__all__ = ["usage"]

NAMES = ("cpu", "memory", "gpu", "gpu_memory", "net_in", "net_out")
_MOST_POINTS = 2000
_KEPT = 16
_known: OrderedDict[tuple[Path, int], _Attempt] = OrderedDict()
_lock = threading.Lock()


class _Rank:
    """Usage samples of one rank so far."""

    def __init__(self, folder: RankFolder) -> None:
        self.folder = folder
        self._file = GrowingFile(folder.usage)
        self.times: list[float] = []
        self.values: dict[str, list[float | None]] = {name: [] for name in NAMES}

    def refresh(self) -> None:
        while data := self._file.read():
            for when, values in parse_usage(data):
                self.times.append(when)
                for name in NAMES:
                    self.values[name].append(values.get(name))

    def shown(self, rank: int, points: int) -> RankUsage:
        last = len(self.times) - 1
        width = max(1, -(-last // max(1, points - 1)))
        starts = [*(range(0, last, width) if points > 1 else ()), *([last] if last >= 0 else [])]
        parts = [slice(at, last + 1 if at == last else min(at + width, last)) for at in starts]
        series: list[UsageSeries] = []
        for name in NAMES:
            values = self.values[name]
            if any(value is not None for value in values):
                series.append({"name": name, "values": [_mean(values[part]) for part in parts]})
        return {
            "rank": rank,
            "times": [self.times[part.stop - 1] for part in parts],
            "series": series,
            "last_sign": _last_sign(self.folder),
        }


class _Attempt:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ranks: list[_Rank] = []


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


def _last_sign(folder: RankFolder) -> float | None:
    """Return when the rank last wrote its log or events.

    For a rank on another host, the time of arrival here.
    """
    signs = []
    for file in (folder.output, folder.events):
        with contextlib.suppress(OSError):
            info = os.stat(file)
            if info.st_size:
                signs.append(info.st_mtime)
    return max(signs, default=None)


def usage(folder: RunFolder, points: int = 120) -> Usage:
    """Return CPU, memory, GPUs and network of each rank of the current attempt.

    The answer also has the time of each rank's last sign of life.
    Each series has about `points` means. The last one is the newest sample itself.
    """
    if not 1 <= points <= _MOST_POINTS:
        raise InputError(f"points must be 1 to {_MOST_POINTS}, got {points}")
    status = reader.status(folder)
    size = rank_count(reader.job(folder), status)
    with _lock:
        key = folder.path, status.attempt
        found = _known.pop(key, None) or _Attempt()
        _known[key] = found
        while len(_known) > _KEPT:
            _known.popitem(last=False)
    with found.lock:
        for rank in range(len(found.ranks), size):
            found.ranks.append(_Rank(folder.rank(status.attempt, rank)))
        for one in found.ranks:
            one.refresh()
        ranks = [one.shown(rank, points) for rank, one in enumerate(found.ranks)]
    return {"attempt": status.attempt, "host_time": time.time(), "ranks": ranks}
