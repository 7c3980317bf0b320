"""The whole logs of several ranks, merged by time: `Run.log()`.

Whole stretches of a log are moved at once: 400,000 lines are a few hundred stretches. Two other modules
merge by other rules. record/cursor.py orders the new lines of a running run line by line.
queries/logs/merged_log.py orders the pages of a view, in which a row's number never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...folder import RunFolder
from ...worker.output import time_index
from .rendered_log import RenderedLog

__all__ = ["interleaved", "unrolled"]


def unrolled(folder: RunFolder, rank: int, attempt: int) -> bytes:
    """Return a rank's log without lines that the rank later rewrote. Empty if there is no log."""
    log = _log(folder, rank, attempt)
    return log.read(0, log.size)


def _log(folder: RunFolder, rank: int, attempt: int) -> RenderedLog:
    log = RenderedLog(folder.rank(attempt, rank).output)
    log.refresh(ended=True)
    return log


def interleaved(folder: RunFolder, ranks: range, attempt: int) -> str:
    """Return the lines of all ranks by time, each with the prefix `[rank] `.

    A rank's own lines keep their order.

    If a rank rewrote the lines of a progress bar, only their last version appears. The time index has times
    of stretches of a log, not of lines.
    """
    stretches: list[tuple[float, int, int, bytes]] = []
    for rank in ranks:
        log = _log(folder, rank, attempt)
        records = time_index.records(folder.rank(attempt, rank).times)
        times = {log.shown(offset): when for offset, when in reversed(records)}
        latest = 0.0
        for number, (when, piece) in enumerate(_cut(log.read(0, log.size), times)):
            latest = max(latest, when)  # a clock that was set back must not reorder lines
            stretches.append((latest, rank, number, piece))
    stretches.sort(key=lambda stretch: stretch[:3])
    return b"".join(_prefixed(rank, piece) for _, rank, _, piece in stretches).decode("utf-8", "replace")


def _cut(data: bytes, times: Mapping[int, float]) -> Iterator[tuple[float, bytes]]:
    """Yield stretches of whole lines, each with a time by which its first bytes were written."""
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
