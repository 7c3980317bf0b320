"""Reasons of failed ranks and attempts, one line each."""

from __future__ import annotations

import contextlib
import json
import signal

from ..folder import RunFolder
from ..job import RankState, State
from ..record.failures import parting
from ..record.failures.failures import RankError, failures, pruning
from ..record.failures.gist import gist
from ..text.format import signal_name

__all__ = ["first_failed", "port_was_taken", "was_pruned", "why", "why_again", "why_failed"]


def first_failed(ranks: tuple[RankState, ...]) -> RankState | None:
    """Return the rank that failed before all others; None if no rank failed."""
    failed = [rank for rank in ranks if rank.state in (State.FAILED, State.LOST)]
    return min(failed, key=lambda rank: rank.ended or 0.0, default=None)


def why_failed(
    folder: RunFolder, ranks: tuple[RankState, ...], attempt: int, otherwise: str | None = None
) -> str:
    """Describe a failed attempt in one line. `otherwise`: the text if no rank explains the failure."""
    found = failures(folder, attempt, ranks)
    parted = parting.headline(folder, attempt, ranks, found)
    if parted is not None:
        return parted
    first = _cause_of(found, ranks) or first_failed(ranks)
    if first is None or (first.exit_code is None and first.signal is None and otherwise):
        return otherwise or "the ranks were ended, and none says why"
    return why(folder, first, attempt)


def why_again(folder: RunFolder, ranks: tuple[RankState, ...], attempt: int) -> str:
    """Describe in one line why the launcher has restarted the ranks."""
    again = "the launcher has started all ranks again"
    first = _cause_of(failures(folder, attempt, ranks), ranks)
    # The launcher sent SIGTERM because a host joined or left. No rank has failed.
    if first is None or first.signal == signal.SIGTERM or first.exit_code == 128 + signal.SIGTERM:
        return again
    return f"{why(folder, first, attempt)}; {again}"


def _cause_of(found: list[RankError], ranks: tuple[RankState, ...]) -> RankState | None:
    """Return the rank that failed by itself. The failure that was noticed first may be a consequence."""
    if not found or found[0].collateral or found[0].rank >= len(ranks):
        return None
    return ranks[found[0].rank]


def why(folder: RunFolder, rank: RankState, attempt: int) -> str:
    """Describe a failed rank in one line: its exception, signal or exit code, or the loss of its host."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        error = json.loads(folder.rank(attempt, rank.rank).error.read_bytes())
        message = gist(str(error["message"]))
        if message or error["type"] != "SystemExit":  # otherwise the exit code says as much
            return f"rank {rank.rank} failed: {error['type']}: {message}".removesuffix(": ")
    if rank.state is State.LOST:
        return f"rank {rank.rank} on {rank.host} was lost"
    if rank.signal is not None:
        return f"rank {rank.rank} was ended by {signal_name(rank.signal)}"
    # A rank that handles SIGTERM exits with code 143, as a shell does, so its status has no signal.
    told = f" ({signal_name(signal.SIGTERM)})" if rank.exit_code == 128 + signal.SIGTERM else ""
    return f"rank {rank.rank} ended with exit code {rank.exit_code}{told}"


_TAKEN = ("eaddrinuse", "address already in use", "could not start grpc server")
"""Error texts of torch, Python and TensorFlow if another process uses the port."""
_HEAD_BYTES = 65_536
"""Upper limit of the events before the cell begins: a rank writes only a few."""


def was_pruned(folder: RunFolder, attempt: int, ranks: tuple[RankState, ...]) -> bool:
    """Return whether the cell has pruned its own trial. Ranks that start again would do the same."""
    return pruning(failures(folder, attempt, ranks)) is not None


def port_was_taken(folder: RunFolder, attempt: int, detail: str | None) -> bool:
    """Return whether the attempt failed because another process used one of its ports.

    Returns False if the cell has begun on any rank, because jupyter-dist does not run a cell again unasked.
    The cell itself is responsible for the ports that it opens.
    `detail`: the backend's text about the attempt's end.
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
