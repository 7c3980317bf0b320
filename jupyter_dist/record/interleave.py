"""Put the whole logs of several ranks together by time: `Run.log()`.

Whole stretches of a log are moved at once: 400,000 lines are a few hundred of them. What comes while a run
goes on is ordered line by line (cursor.py); the pages of a view, whose rows must keep their numbers for
good, are ordered by `queries.log_all`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..folder import RunFolder
from ..worker import time_index
from . import reader

__all__ = ["interleaved"]


def interleaved(folder: RunFolder, ranks: range, attempt: int) -> str:
    """Every line of every rank behind `[rank] `, by time; a rank's own lines keep their order.

    The time index knows stretches of a log, not lines: 400,000 lines are a few hundred stretches.
    """
    stretches: list[tuple[float, int, int, bytes]] = []
    for rank in ranks:
        data = reader.output(folder, rank, attempt)
        times = dict(time_index.records(folder.rank(attempt, rank).times))
        latest = 0.0
        for number, (when, piece) in enumerate(_cut(data, times)):
            latest = max(latest, when)  # a clock that was set back must not turn lines around
            stretches.append((latest, rank, number, piece))
    stretches.sort(key=lambda stretch: stretch[:3])
    return b"".join(_prefixed(rank, piece) for _, rank, _, piece in stretches).decode("utf-8", "replace")


def _cut(data: bytes, times: Mapping[int, float]) -> Iterator[tuple[float, bytes]]:
    """Stretches of whole lines, each with the time by which it had begun to be there."""
    start = 0
    for offset, when in times.items():
        if offset <= start:
            continue
        end = data.find(b"\n", offset - 1) + 1 or len(data)
        if end > start:
            yield when, data[start:end]
            start = end
    if start < len(data):
        yield float("inf"), data[start:]


def _prefixed(rank: int, piece: bytes) -> bytes:
    prefix = b"[%d] " % rank
    return prefix + piece.removesuffix(b"\n").replace(b"\n", b"\n" + prefix) + b"\n"
