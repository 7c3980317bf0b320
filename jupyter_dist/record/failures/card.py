"""The card of a run that failed or was stopped: what happened, why, where, and what to do.

A card is data. The views, the terminal and a saved notebook draw the same card. A finder contributes to it:
`FINDERS` lists the finders, in the order in which a reader wants their lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...folder import RunFolder
from ...job import State, Status
from ...text.format import attach_call, count, duration
from ...text.safe import clean_lines, one_line
from .. import reader
from . import evidence, other_ranks, parting
from .failures import RankError, failures, is_symptom, root_cause
from .finding import Finding, Part
from .wording import about, what

__all__ = ["FINDERS", "MOST_LINES", "Card", "Finding", "Part", "card"]

MOST_LINES = 12
"""Lines of a card, without its folded parts."""
_MOST_HINTS, _MOST_CAUSES, _MOST_PLACES, _MOST_OTHERS = 3, 5, 4, 3
_MOST_REASON = 4000

Finder = Callable[[RunFolder, Status, Sequence[RankError]], Finding]
FINDERS: tuple[Finder, ...] = (
    parting.finding,
    evidence.advice,
    evidence.memory,
    evidence.traceback,
    evidence.stalled,
    evidence.log,
    evidence.launchers,
    other_ranks.tracebacks,
)
"""A finder reads the run's folder and returns what it knows. It returns an empty finding for other runs."""


@dataclass(frozen=True)
class Card:
    """One failure, in at most `MOST_LINES` lines and some folded parts. All texts are safe to print."""

    title: str
    """What happened, such as `rank 1 failed first`."""
    about: str = ""
    """Host, attempt, exit code. May be empty."""
    what: str = ""
    """The error in one line."""
    hints: tuple[str, ...] = ()
    """What to do."""
    causes: tuple[str, ...] = ()
    """Why, besides `what`."""
    places: tuple[str, ...] = ()
    """Where ranks were: `rank 1 was at In[3], line 4: raise ValueError(x)`."""
    others: tuple[str, ...] = ()
    """What became of the other ranks."""
    files: str = ""
    """Where all of it is on the disk."""
    parts: tuple[Part, ...] = ()
    """Longer texts, which a view folds."""

    @property
    def headline(self) -> str:
        where = f" ({self.about})" if self.about else ""
        return f"{self.title}{where}: {self.what}" if self.what else f"{self.title}{where}"

    def lines(self) -> list[str]:
        """Return the card as text lines, without its folded parts."""
        found = [self.headline, *(f"hint: {hint}" for hint in self.hints)]
        found += [*self.causes, *self.places, *self.others]
        del found[MOST_LINES - 1 :]
        return [*found, self.files] if self.files else found


def card(
    folder: RunFolder,
    status: Status | None = None,
    errors: Sequence[RankError] | None = None,
    attempt: int | None = None,
) -> Card | None:
    """Return the card of a run that failed, was lost or was stopped. None for any other run.

    `attempt`: an earlier attempt, which failed. By default the newest.
    """
    status = reader.status(folder) if status is None else status
    earlier = attempt is not None and attempt != status.attempt
    number = status.attempt if attempt is None else attempt
    if status.state is State.LOST and not earlier:
        return _lost(folder, status)
    if not earlier and status.state not in (State.FAILED, State.STOPPED):
        return None
    errors = failures(folder, number) if errors is None else errors
    root = root_cause(errors) if earlier or status.state is State.FAILED else None
    if earlier:
        if root is None:
            return None
        status = _as_attempt(folder, status, number)
    if root is not None:
        begun = Card(_title(root, status), about(root, status), what(root))
    elif status.state is State.STOPPED:
        begun = Card(f"run {status.id} was stopped{_after(status)}", "", one_line(status.reason or "", 200))
        found = _with_findings(begun, folder, status, errors)
        return found if found.places or found.title != begun.title else begun  # a run that did not hang
    else:
        begun = _without_rank(status)
    return _with_findings(begun, folder, status, errors)


def _with_findings(begun: Card, folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Card:
    found = [finder(folder, status, errors) for finder in FINDERS]
    root = root_cause(errors)
    better = next((finding for finding in found if finding.title), None)
    if better is not None:
        seen_first = f"what was noticed first: {begun.headline}"
        begun, root = Card(better.title, "", better.what, causes=(seen_first,)), None
        errors = [error for error in errors if not is_symptom(error)]
    hints = [hint for finding in found for hint in finding.hints]
    causes = [*begun.causes, *(cause for finding in found for cause in finding.causes)]
    places = [place for finding in found for place in finding.places]
    others = other_ranks.lines(errors, root, status)
    if len(places) > _MOST_PLACES:
        left = len(places) - _MOST_PLACES + 1
        places[_MOST_PLACES - 1 :] = [f"{count(left, 'more place')}: see the stacks below"]
    return replace(
        begun,
        hints=tuple(hints[:_MOST_HINTS]),
        causes=tuple(causes[:_MOST_CAUSES]),
        places=tuple(places),
        others=tuple(others[:_MOST_OTHERS]),
        files=next((finding.files for finding in found if finding.files), ""),
        parts=(*begun.parts, *(part for finding in found for part in finding.parts)),
    )


def _title(root: RankError, status: Status) -> str:
    return f"rank {root.rank} failed{' first' if len(status.ranks) > 1 else ''}"


def _after(status: Status) -> str:
    return (
        f" after {duration((status.ended or 0) - status.started)}" if status.started and status.ended else ""
    )


def _without_rank(status: Status) -> Card:
    """Return the card of a run that a time limit, the backend or the supervisor has ended."""
    reason = clean_lines(status.reason, limit=400)[:_MOST_REASON] if status.reason else "no rank said why"
    first, *more = reason.rstrip().split("\n")
    parts = (Part("reason", "The whole message", reason),) if len(more) > _MOST_CAUSES else ()
    return Card("the run failed", status.id, first, causes=tuple(more[:_MOST_CAUSES]), parts=parts)


def _lost(folder: RunFolder, status: Status) -> Card:
    reason = one_line(status.reason, 400) if status.reason else "its supervisor is gone"
    read = f"{attach_call(folder.id)}.log(rank), and likewise .metrics and .errors"
    return Card(
        f"run {folder.id} is lost",
        "",
        f"{reason}.",
        causes=(f"All that its ranks wrote until then can be read: {read}.",),
        files=f"files: {one_line(str(folder.path), 600)}",
    )


def _as_attempt(folder: RunFolder, status: Status, attempt: int) -> Status:
    """Return the status as it was at the end of an earlier attempt."""
    ranks = reader.ranks(folder, attempt)
    return replace(status, state=State.FAILED, attempt=attempt, ranks=tuple(ranks), stall=None, reason=None)
