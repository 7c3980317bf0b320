"""Put the whole logs of several ranks together by time: `Run.log()`.

Whole stretches of a log are moved at once: 400,000 lines are a few hundred of them. What comes while a run
goes on is ordered line by line (cursor.py); the pages of a view, whose rows must keep their numbers for
good, are ordered by `queries.log_all`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...folder import RunFolder
from ...worker.output import time_index
from .rendered_log import RenderedLog

__all__ = ["interleaved", "unrolled"]


def unrolled(folder: RunFolder, rank: int, attempt: int) -> bytes:
    """A rank's log without what it rewrote by moving the cursor up; empty when there is none."""
    log = _log(folder, rank, attempt)
    return log.read(0, log.size)


def _log(folder: RunFolder, rank: int, attempt: int) -> RenderedLog:
    log = RenderedLog(folder.rank(attempt, rank).output)
    log.refresh(ended=True)
    return log


def interleaved(folder: RunFolder, ranks: range, attempt: int) -> str:
    """Every line of every rank behind `[rank] `, by time; a rank's own lines keep their order.

    The lines of a bar that a rank rewrote stand there once, as they were in the end. The time index knows
    stretches of a log, not lines: 400,000 lines are a few hundred stretches.
    """
    stretches: list[tuple[float, int, int, bytes]] = []
    for rank in ranks:
        log = _log(folder, rank, attempt)
        records = time_index.records(folder.rank(attempt, rank).times)
        times = {log.shown(offset): when for offset, when in reversed(records)}
        latest = 0.0
        for number, (when, piece) in enumerate(_cut(log.read(0, log.size), times)):
            latest = max(latest, when)  # a clock that was set back must not turn lines around
            stretches.append((latest, rank, number, piece))
    stretches.sort(key=lambda stretch: stretch[:3])
    return b"".join(_prefixed(rank, piece) for _, rank, _, piece in stretches).decode("utf-8", "replace")


def _cut(data: bytes, times: Mapping[int, float]) -> Iterator[tuple[float, bytes]]:
    """Stretches of whole lines, each with the time by which it had begun to be there."""
    start = 0
    for offset, when in sorted(times.items()):
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
