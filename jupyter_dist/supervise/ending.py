"""How an attempt is brought to its end, and what is said about why."""

from __future__ import annotations

import json
import signal

from ..folder import RunFolder
from ..job import RankState, State
from ..record.failures import failures
from ..text.format import signal_name

__all__ = [
    "Ending",
    "first_failed",
    "why",
    "why_again",
    "why_failed",
]


class Ending:
    """How an attempt is being brought to its end: SIGTERM to all ranks, and SIGKILL after a grace.

    Times are by the monotonic clock, but for `termed_at`.
    """

    def __init__(
        self,
        state: State,
        reason: str,
        term_at: float,
        grace_s: float,
        *,
        of_rank: bool = False,
        of_backend: bool = False,
        stacks: bool = False,
    ) -> None:
        self.state, self.reason = state, reason
        self.of_rank = of_rank
        """Whether a rank's failure is the reason; which one was first is known when all have ended."""
        self.of_backend = of_backend
        """Whether the backend's failure is: another attempt would be no better."""
        self.stacks = stacks
        """Whether the ranks are asked for their stacks before they are told to end."""
        self.term_at, self._grace_s = term_at, grace_s
        self.kill_at: float | None = None
        """Known when SIGTERM has been delivered: the grace is the ranks', not a slow backend's."""
        self.termed_at: float | None = None
        """When SIGTERM was sent, by the clock of files."""
        self.killed = False
        """SIGKILL has been delivered."""

    def delivered(self, now: float) -> None:
        """The backend has passed SIGTERM on."""
        if self.kill_at is None:
            self.kill_at = now + self._grace_s

    def hurry(self, now: float) -> Ending:
        """Skip what is left of the grace."""
        self.kill_at = now if self.kill_at is None else min(self.kill_at, now)
        return self


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
