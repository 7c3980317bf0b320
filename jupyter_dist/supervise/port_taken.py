"""Whether an attempt failed for a port that we had chosen and another process has taken meanwhile."""

from __future__ import annotations

from ..folder import RunFolder

__all__ = ["port_was_taken"]

_TAKEN = ("eaddrinuse", "address already in use", "could not start grpc server")
"""What torch, Python and TensorFlow say of a port that another process has taken."""
_HEAD_BYTES = 65_536
"""A rank writes a handful of events before its cell begins."""


def port_was_taken(folder: RunFolder, attempt: int, detail: str | None) -> bool:
    """Whether another attempt, with other ports, would get further.

    Only where no line of the cell has run on any rank: nobody runs a cell again unasked, and a port that the
    cell has opened is its own affair. `detail`: what the backend said of the attempt's end.
    """
    said = [detail or ""]
    for place in folder.ranks(attempt):
        if _cell_has_begun(folder, attempt, place):
            return False
        try:
            said.append(folder.rank(attempt, place).error.read_text())
        except OSError:
            continue
    return any(words in text.lower() for text in said for words in _TAKEN)


def _cell_has_begun(folder: RunFolder, attempt: int, rank: int) -> bool:
    try:
        with folder.rank(attempt, rank).events.open("rb") as file:
            return b'"kind": "cell"' in file.read(_HEAD_BYTES)
    except OSError:
        return False
