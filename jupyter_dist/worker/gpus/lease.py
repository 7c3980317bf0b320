"""The lease of a run on GPUs of this machine.

A lease decides which GPUs the run gets, or why it gets none, and until when.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import record
from .devices import Gpu, named, visible_gpus
from .record import Entry, Holder

__all__ = ["GpuRequest", "Lease", "Refused", "TooFew", "free_gpus", "preview", "standing"]


@dataclass(frozen=True)
class GpuRequest:
    """The GPUs that the ranks of a run on this machine request."""

    run: str
    notebook: str | None
    takers: int
    """The number of ranks that want GPUs."""
    each: float | None = None
    """The number of GPUs for each rank: a whole number, or the fraction of one GPU if below 1.

    None: as many as can be shared out evenly.
    """
    share: bool = False
    """Whether other runs may use the same GPUs."""
    spare: bool = False
    """Whether the ranks accept fewer GPUs if the machine has fewer."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GpuRequest:
        return cls(**data)

    def least(self, there: int) -> int:
        """Return how many GPUs must be free on a machine with `there` GPUs."""
        if self.each is None or self.each >= 1:
            wanted = self.takers * int(self.each or 1)
        else:
            wanted = math.ceil(self.takers / self.to_one)
        return min(wanted, there) if self.spare else wanted

    def count(self, free: int, there: int) -> int:
        """Return how many of the free GPUs are used; 0 if they are too few."""
        least = self.least(there)
        if free < least or self.each is not None or self.spare:
            return least if free >= least else 0
        return free // max(1, self.takers) * self.takers

    @property
    def to_one(self) -> int:
        """The number of ranks that use the same GPU."""
        return 1 if self.each is None or self.each >= 1 else max(1, int(1 / self.each + 1e-9))

    def shares_out(self, gpus: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the GPUs of each rank, out of the leased GPUs."""
        if gpus and self.each is not None and self.each < 1:
            return [(gpus[taker // self.to_one],) for taker in range(self.takers)]
        share = len(gpus) // max(1, self.takers) if self.each is None else int(self.each)
        return [tuple(gpus[share * taker : share * (taker + 1)]) for taker in range(self.takers)]


class Refused(Exception):
    """The GPUs are not free. The message names their users."""


class TooFew(Refused):
    """The machine has too few GPUs, free or not."""


class Lease:
    """The GPUs of one run on this machine. They are leased once, for all its attempts. Not thread-safe."""

    def __init__(self) -> None:
        self.gpus: tuple[Gpu, ...] | None = None
        """The leased GPUs; None before the lease."""
        self.unrecorded: str | None = None
        """The reason why other runs cannot see this lease; None if they can."""
        self._entry: Entry | None = None
        self._ticket: int | None = None

    @property
    def path(self) -> str | None:
        """The file that the ranks must lock as well (`record.hold`)."""
        return None if self._entry is None else self._entry.path

    def take(self, wish: GpuRequest, *, wait: bool = False) -> tuple[Gpu, ...]:
        """Lease GPUs. Repeatable.

        With `wait`, this run keeps its position in the queue. The caller must repeat the call until it
        succeeds.

        Raises Refused.
        """
        if self.gpus is not None:
            return self.gpus
        gpus = visible_gpus()
        _check_number(wish, gpus)
        if not any(gpu.uuid for gpu in gpus):
            self.gpus = gpus[: wish.count(len(gpus), len(gpus))]
            return self.gpus
        try:
            with record.turn():
                self._decide(wish, gpus, wait)
        except record.Unusable as error:
            # Leases of other runs are respected if they can be read. An unrecorded run is better than a run
            # that cannot train.
            others = record.holders()
            chosen = _choose(wish, gpus, others)
            if chosen is None:
                raise Refused(_refusal(wish, gpus, others)) from None
            self.unrecorded = f"no record of who uses which GPU: {error}"
            self.gpus = tuple(chosen)
        assert self.gpus is not None
        return self.gpus

    def _decide(self, wish: GpuRequest, gpus: Sequence[Gpu], wait: bool) -> None:
        others = record.holders(but=self._entry)
        chosen = _choose(wish, gpus, others, self._ticket)
        if chosen is None:
            if wait and self._ticket is None:
                self._ticket = 1 + max((other.ticket for other in others), default=0)
                self._enter(wish, gpus, wish.least(len(gpus)))
            raise Refused(_refusal(wish, gpus, others, self._ticket))
        self._enter(wish, chosen)
        self.gpus = tuple(chosen)

    def _enter(self, wish: GpuRequest, gpus: Iterable[Gpu], waits_for: int = 0) -> None:
        holder = Holder(
            run=wish.run,
            notebook=wish.notebook,
            uuids=frozenset(gpu.uuid for gpu in gpus if gpu.uuid),
            wholes=frozenset(gpu.whole for gpu in gpus if gpu.whole),
            shares=wish.share,
            waits_for=waits_for,
            ticket=self._ticket or 0,
        )
        before, self._entry = self._entry, record.enter(holder)
        if before is not None:
            record.leave(before)

    def release(self) -> None:
        """Release the GPUs, or the position in the queue. Repeatable."""
        if self._entry is not None:
            record.leave(self._entry)
        self._entry = self.gpus = self._ticket = None


def _choose(
    wish: GpuRequest, gpus: Sequence[Gpu], others: Sequence[Holder], ticket: int | None = None
) -> list[Gpu] | None:
    """Choose the GPUs for a request; None if too few are free. Pure.

    `ticket`: the position in the queue. Without a ticket, the request is behind all waiting runs.
    """
    used = [sum(other.has(gpu) for other in others if not other.waits_for) for gpu in gpus]
    if wish.share:
        # Choose the GPUs with the fewest other users.
        order = sorted(range(len(gpus)), key=lambda at: (used[at], at))
        count = wish.count(len(gpus), len(gpus))
        return [gpus[at] for at in sorted(order[:count])] if count else None
    free = [gpu for gpu, users in zip(gpus, used) if not users]
    for ahead in _ahead(others, ticket):
        kept = [gpu for gpu in free if ahead.has(gpu)][: ahead.waits_for]
        free = [gpu for gpu in free if gpu not in kept]
    count = wish.count(len(free), len(gpus))
    return free[:count] if count else None


def _ahead(others: Sequence[Holder], ticket: int | None) -> list[Holder]:
    waiting = [other for other in others if other.waits_for and (ticket is None or other.ticket < ticket)]
    return sorted(waiting, key=lambda other: other.ticket)


def free_gpus(gpus: Sequence[Gpu], others: Sequence[Holder]) -> list[Gpu]:
    """Return the GPUs that no run uses or waits for."""
    alone = GpuRequest("", None, 1, None)
    return _choose(alone, gpus, others) or []


def _check_number(wish: GpuRequest, gpus: Sequence[Gpu]) -> None:
    needed, there = wish.least(len(gpus)), len(gpus)
    if needed > there and (gpus or wish.each is not None):
        seen = f"only {there} {'is' if there == 1 else 'are'}" if there else "none is"
        raise TooFew(f"{needed} {'GPU is' if needed == 1 else 'GPUs are'} needed, but {seen} visible here")


def preview(wish: GpuRequest) -> tuple[Gpu, ...]:
    """Return the GPUs that `Lease.take` would lease now, without leasing them.

    Raises Refused.
    """
    gpus, others = visible_gpus(), record.holders()
    _check_number(wish, gpus)
    chosen = _choose(wish, gpus, others)
    if chosen is None and gpus:
        raise Refused(_refusal(wish, gpus, others))
    return tuple(chosen or ())


def _refusal(
    wish: GpuRequest, gpus: Sequence[Gpu], others: Sequence[Holder], ticket: int | None = None
) -> str:
    """Explain why the request is refused, and, before the run waits, what the user can do. Pure."""
    told, needed = standing(gpus, others, ticket), wish.least(len(gpus))
    if ticket is not None:
        return f"waits for {needed} GPU{'' if needed == 1 else 's'}: {told}"
    cure = "Add --wait-for-gpus to wait for them, or --share-gpus to use them now"
    if wish.each is None:
        cure += ", or --gpus-per-worker 0 to train on the CPU"
    return f"{needed} {'GPU is' if needed == 1 else 'GPUs are'} needed: {told}. {cure}"


def standing(gpus: Sequence[Gpu], others: Sequence[Holder], ticket: int | None = None) -> str:
    """Describe which run uses which of these GPUs, which runs wait, and how many GPUs are free. Pure.

    `ticket`: list only runs that are ahead of it in the queue. The text is empty if all GPUs are free and no
    run waits.
    """
    told = []
    for other in others:
        theirs = [gpu for gpu in gpus if other.has(gpu)]
        if theirs and not other.waits_for:
            verb = "are" if len(theirs) > 1 else "is"
            how = "shared" if other.shares else "held"
            told.append(f"{named(theirs)} {verb} {how} by {other}")
    for other in _ahead(others, ticket):
        if any(other.has(gpu) for gpu in gpus):
            told.append(f"{other} waits for {other.waits_for}")
    if not told:
        return ""
    used = [other for other in others if not other.waits_for]
    free = sum(not any(other.has(gpu) for other in used) for gpu in gpus)
    return f"{', '.join(told)}; {free or 'none'} {'is' if free in (0, 1) else 'are'} free"
