"""What to do about ranks that have parted, as texts for the card."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...job import RankState
from .collectives import Parting

__all__ = [
    "ALIKE",
    "ALIKE_MESSAGE",
    "ALL_CALL",
    "EVEN",
    "EVEN_KERAS",
    "LATE",
    "LOCK",
    "MESSAGES",
    "NETWORK",
    "ONE_ROOT",
    "SAME_ORDER",
    "SILENT",
    "SIZE",
    "UNEVEN",
    "locks",
    "of",
]

SAME_ORDER = (
    "every rank must call the same collectives in the same order: look for an `if` on the rank, and for a "
    "loop that one rank leaves earlier"
)
UNEVEN = (
    "{missing} had less input, or an `if` on the rank has left out a call here, or made one more elsewhere. "
    "For inputs of different lengths use {even}"
)
EVEN = "dist.shard(data, even=True), a DistributedSampler, or Join of torch and hvd.join() of Horovod"
EVEN_KERAS = "dataset.repeat() and the same steps_per_epoch on all workers"
LATE = (
    "look at where {missing} {was}: the code takes longer there, or an `if` on the rank has skipped the call"
)
ALIKE = (
    "every rank must call the same collectives with tensors of the same shape and type: look for an `if` on "
    "the rank, for a last, smaller batch, and for a loop that one rank leaves earlier"
)
LOCK = (
    "a rank waits for a lock there. If another rank or thread has the lock, release it before the collective"
)
MESSAGES = (
    "each recv needs a send of the other rank, and a send may wait for the recv: look at the order of the "
    "calls, or use batch_isend_irecv"
)
ALL_CALL = "every rank must call it: look for an `if` on the rank around the call"
SILENT = "look for os._exit() in the code of {missing} and of its libraries: it ends a process without a word"
ONE_ROOT = "every rank must name the same src or dst: write the same number, not the rank's own"
SIZE = "the run has {ranks} ranks: leave out world_size, rank and WORLD_SIZE, or call dist.init()"
NETWORK = (
    "all of them have called it: look whether the hosts reach each other, and whether a firewall or a wrong "
    "network interface is between them (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)"
)
ALIKE_MESSAGE = "a recv needs a tensor of the shape and type that the other rank sends"


_LOCKS = re.compile(r"\b(flock|lockf|acquire)\(|[lL]ock\(")


def locks(places: Iterable[str]) -> bool:
    """Return whether a line of code at one of these places takes a lock."""
    return any(map(_LOCKS.search, places))


def of(found: Parting, ranks: Sequence[RankState]) -> str:
    """Return what to do about ranks that have parted in another way than that one is missing."""
    calls = list(found.calls.values())
    if found.kind == "differ":
        if not all(call.same_root(calls[0]) for call in calls):
            return ONE_ROOT
        return ALIKE if len({call.operation for call in calls}) == 1 else SAME_ORDER
    if found.kind == "together":
        opens = calls[0].operation.startswith("init_process_group")
        return SIZE.format(ranks=len(ranks)) if opens else NETWORK
    return MESSAGES if any(call.is_message for call in calls) else SAME_ORDER
