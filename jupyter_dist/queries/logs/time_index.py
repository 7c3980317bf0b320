"""Bulk reader of a rank's time index, which maps offsets of its log to the times they were written by."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...worker.output import time_index

__all__ = ["RECORD", "records", "times_of"]

RECORD = np.dtype(list(time_index.FIELDS))
_SIZE = RECORD.itemsize
MAX_RECORDS = 1 << 16
"""Records per read."""


def records(path: Path, start: int, count: int = MAX_RECORDS) -> npt.NDArray[np.void]:
    """Return at most `count` records from number `start` on. Empty if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return np.empty(0, RECORD)
    try:
        data = os.pread(fd, count * _SIZE, start * _SIZE)
    finally:
        os.close(fd)
    return np.frombuffer(data[: len(data) - len(data) % _SIZE], RECORD)


def times_of(path: Path, ends: Sequence[int], default: float) -> list[float]:
    """Return when the bytes before each of the ascending offsets were seen.

    Offsets that no record covers yet get `default`. The first record is found by bisection in the file. A
    day's index of many ranks is large, and a page needs only a few records.
    """
    if not ends:
        return []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return [default] * len(ends)
    try:
        low, high = 0, os.fstat(fd).st_size // _SIZE
        while low < high:
            middle = (low + high) // 2
            offset, _ = time_index.RECORD.unpack(os.pread(fd, _SIZE, middle * _SIZE))
            low, high = (middle + 1, high) if offset < ends[0] else (low, middle)
    finally:
        os.close(fd)
    found: list[float] = []
    while len(found) < len(ends):
        some = records(path, low)
        if not len(some):
            break
        low += len(some)
        at = np.searchsorted(some["offset"], np.array(ends[len(found) :], np.uint64), "left")
        at = at[at < len(some)]
        found += some["time"][at].tolist()
    return found + [default] * (len(ends) - len(found))
