"""What became of the ranks that did not fail first, folded by their error."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...folder import RunFolder
from ...job import State, Status
from ...text.fold import named
from ...text.format import attach_call, count
from ...text.safe import clean_lines
from .failures import RankError, root_cause
from .finding import Finding, Part
from .wording import what

__all__ = ["lines", "tracebacks"]

_KINDS = 5
_MOST_TEXT = 8000
_DIFFERS = re.compile(r"0x[0-9a-f]+|[0-9]+")
"""Ports, addresses and steps differ between ranks."""


def lines(errors: Sequence[RankError], root: RankError | None, status: Status) -> list[str]:
    """Return a line for each kind of end that other ranks had."""
    why = " because of it" if root is not None else ""
    kinds = _kinds([error for error in errors if error is not root])
    named_ranks = {error.rank for error in errors}
    found = []
    for ranks, error in kinds[: _KINDS if len(kinds) <= _KINDS else 1]:
        how = f"ended{why}" if error.collateral else "also failed"
        found.append(f"{named(ranks)} {how}: {what(error)}")
    left = sum(len(ranks) for ranks, _ in kinds[len(found) :])
    if left:
        all_errors = f"{attach_call(status.id)}.errors"
        found.append(f"{count(left, 'more rank')} failed in other ways: {all_errors} has them all")
    ended = [
        r.rank for r in status.ranks if r.state is State.STOPPED and r.started and r.rank not in named_ranks
    ]
    if ended:
        found.append(f"{named(ended)} {'was' if len(ended) == 1 else 'were'} ended{why}")
    return found


def tracebacks(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Return the traceback of each other kind of failure."""
    root = root_cause(errors)
    kinds = _kinds([error for error in errors if error is not root and error.text])
    return Finding(
        parts=tuple(
            Part(
                "rank",
                f"Traceback of {named(ranks)}: {what(error)}",
                clean_lines(error.text, limit=400).rstrip()[-_MOST_TEXT:],
            )
            for ranks, error in kinds[:_KINDS]
        )
    )


def _kinds(errors: Sequence[RankError]) -> list[tuple[list[int], RankError]]:
    """Return the ranks of each kind of failure, with the kind's first failure."""
    kinds: dict[str, tuple[list[int], RankError]] = {}
    for error in errors:
        key = f"{error.collateral} {_DIFFERS.sub('#', what(error))}"
        kinds.setdefault(key, ([], error))[0].append(error.rank)
    return list(kinds.values())
