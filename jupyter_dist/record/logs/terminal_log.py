"""A run's log for a terminal: the last lines of some ranks by time, then new lines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator

from ...errors import InputError
from ...folder import RunFolder
from ...job import State
from .. import reader
from ..cursor import Tail

__all__ = ["follow_log", "read_log"]


def _check_ranks(folder: RunFolder, ranks: Collection[int]) -> None:
    size = max(reader.job(folder).world_size, len(reader.status(folder).ranks))
    unknown = sorted(rank for rank in ranks if not 0 <= rank < size)
    if unknown:
        known = "rank 0" if size == 1 else f"ranks 0 to {size - 1}"
        raise InputError(f"run {folder.id} has {known}, not {unknown[0]}")


def read_log(
    folder: RunFolder, *, ranks: Collection[int] | None = None, tail: int | None = None
) -> tuple[list[reader.Line], int]:
    """Return the last `tail` lines of these ranks (default: all) by time, and the number of lines before."""
    if ranks is not None:
        _check_ranks(folder, ranks)
    kept: deque[reader.Line] = deque(maxlen=tail)
    total = 0
    for batch in Tail(folder).drain():
        wanted = [line for line in batch.lines if ranks is None or line.rank in ranks]
        kept.extend(wanted)
        total += len(wanted)
    return list(kept), total - len(kept)


def follow_log(
    folder: RunFolder, *, ranks: Collection[int] | None = None, tail: int | None = None
) -> Iterator[list[reader.Line]]:
    """Yield the log's last `tail` lines (default: all), then new lines until the run ends.

    Blocks between new lines. Also ends if the run is unwatched, because then no process copies its lines
    here.
    """
    if ranks is not None:
        _check_ranks(folder, ranks)
    source = Tail(folder)
    kept: deque[reader.Line] = deque(maxlen=tail)
    for batch in source.drain():
        kept.extend(line for line in batch.lines if ranks is None or line.rank in ranks)
    yield list(kept)
    while True:
        batch = source.poll()
        lines = [line for line in batch.lines if ranks is None or line.rank in ranks]
        if lines:
            yield lines
        elif (batch.status.state.ended or batch.status.state is State.UNWATCHED) and not batch.lines:
            return
        else:
            time.sleep(0.05)
