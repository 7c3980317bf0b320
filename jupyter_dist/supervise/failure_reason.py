"""How an attempt is brought to its end, and what is said about why."""

from __future__ import annotations

import json
import signal

from ..folder import RunFolder
from ..job import RankState, State
from ..record.failures.failures import failures
from ..text.format import signal_name

__all__ = ["first_failed", "port_was_taken", "why", "why_again", "why_failed"]


def first_failed(ranks: tuple[RankState, ...]) -> RankState | None:
    """The rank that failed before all others."""
    failed = [rank for rank in ranks if rank.state in (State.FAILED, State.LOST)]
    return min(failed, key=lambda rank: rank.ended or 0.0, default=None)


def why_failed(
    folder: RunFolder, ranks: tuple[RankState, ...], attempt: int, otherwise: str | None = None
) -> str:
    """One line about an attempt that failed. `otherwise`: what is said where no rank explains it."""
    first = _root_cause(folder, ranks, attempt) or first_failed(ranks)
    if first is None or (first.exit_code is None and first.signal is None and otherwise):
        return otherwise or "the ranks were ended, and none says why"
    return why(folder, first, attempt)


def why_again(folder: RunFolder, ranks: tuple[RankState, ...], attempt: int) -> str:
    """One line about ranks that their launcher has ended and started again."""
    again = "the launcher has started all ranks again"
    first = _root_cause(folder, ranks, attempt)
    # Ended to let another host join or leave: no rank has failed.
    if first is None or first.signal == signal.SIGTERM or first.exit_code == 128 + signal.SIGTERM:
        return again
    return f"{why(folder, first, attempt)}; {again}"


def _root_cause(folder: RunFolder, ranks: tuple[RankState, ...], attempt: int) -> RankState | None:
    """Who failed by itself: what is noticed first may be what followed from it."""
    found = failures(folder, attempt, ranks)
    if not found or found[0].collateral or found[0].rank >= len(ranks):
        return None
    return ranks[found[0].rank]


def why(folder: RunFolder, rank: RankState, attempt: int) -> str:
    """One line about a rank that failed: its exception, signal or exit code, or that its host is gone."""
    try:
        error = json.loads(folder.rank(attempt, rank.rank).error.read_bytes())
        message = str(error["message"]).strip().split("\n")[0][:200]
        return f"rank {rank.rank} failed: {error['type']}: {message}".removesuffix(": ")
    except (OSError, ValueError, KeyError, TypeError):
        pass
    if rank.state is State.LOST:
        return f"rank {rank.rank} on {rank.host} was lost"
    if rank.signal is not None:
        return f"rank {rank.rank} was ended by {signal_name(rank.signal)}"
    # A rank that ends in order after SIGTERM leaves a code, as a shell does, and no signal.
    told = f" ({signal_name(signal.SIGTERM)})" if rank.exit_code == 128 + signal.SIGTERM else ""
    return f"rank {rank.rank} ended with exit code {rank.exit_code}{told}"


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
