"""Reader of state.json as it was written. Thousands of ranks are parsed again only if they have changed.

The supervisor writes the file every two seconds, and most of these versions differ only in their heartbeat.
The ranks are the last key of the file (`Status.to_json`). If its bytes are as before, so are the ranks.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from ..folder import RunFolder
from ..job import RankState, Status

__all__ = ["read"]

_MOST_KEPT, _MOST_KEPT_BYTES = 64, 8 << 20
_RANKS, _NONE = b'"ranks": [', b"]}"


class _Known(NamedTuple):
    version: tuple[int, int, int]
    """Inode, time and size of the file."""
    ranks: bytes | None
    """The bytes of the file from the key of the ranks on. None if it is not the last key."""
    status: Status


_known: dict[Path, _Known] = {}
"""The newest states by their file. A cell's view reads the same state a dozen times."""


def read(folder: RunFolder) -> Status | None:
    """Read the status as written. Returns None if there is none yet. Each version of the file is parsed once.

    Raises OSError, and ValueError if the file is invalid.
    """
    try:
        with folder.state.open("rb") as file:
            info = os.fstat(file.fileno())
            version = (info.st_ino, info.st_mtime_ns, info.st_size)
            known = _known.get(folder.state)
            if known is not None and known.version == version:
                return known.status
            data = file.read()
    except FileNotFoundError:
        return None
    try:
        found, ranks = _parsed(data, known)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(str(error)) from error
    _known.pop(folder.state, None)
    _known[folder.state] = _Known(version, ranks, found)
    _drop_oldest()
    return found


def _drop_oldest() -> None:
    kept = list(_known.items())  # threads of the server read at once
    size = sum(one.version[2] for _, one in kept)
    for number, (path, one) in enumerate(kept[:-1]):
        if len(kept) - number <= _MOST_KEPT and size <= _MOST_KEPT_BYTES:
            return
        _known.pop(path, None)
        size -= one.version[2]


def _parsed(data: bytes, known: _Known | None) -> tuple[Status, bytes | None]:
    at = data.rfind(_RANKS)
    head, ranks = (data[:at] + _RANKS + _NONE, data[at:]) if at >= 0 else (b"", None)
    if known is not None and ranks is not None and ranks == known.ranks:
        return Status.from_json(json.loads(head), known.status.ranks), ranks
    told = json.loads(data)
    before = known.status.ranks if known is not None else ()
    states = tuple(_rank(number, rank, before) for number, rank in enumerate(told.get("ranks", ())))
    found = Status.from_json(told, states)
    # An earlier release wrote other keys behind the ranks.
    return found, ranks if next(reversed(told), None) == "ranks" else None


def _rank(number: int, told: Any, before: tuple[RankState, ...]) -> RankState:
    if number < len(before) and vars(before[number]) == told:
        return before[number]
    return RankState.from_json(told)
