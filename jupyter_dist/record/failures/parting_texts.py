"""Texts of the card about ranks that have parted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ...job import RankState
from ...text.fold import named
from ...worker.rank.calls import NCCL
from .collectives import Call, Parting

__all__ = [
    "ALIKE",
    "ALIKE_MESSAGE",
    "ALL_CALL",
    "EVEN",
    "EVEN_KERAS",
    "INPUT",
    "LATE",
    "LOCK",
    "MESSAGES",
    "MOST_CALLS",
    "NETWORK",
    "ONE_ROOT",
    "SAME_ORDER",
    "SILENT",
    "SIZE",
    "UNEVEN",
    "group",
    "kinds",
    "locks",
    "of",
    "told",
]

MOST_CALLS = 3
"""Calls that one line names."""
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
INPUT = (
    "a thread of {missing} runs your code, probably a generator or a function of the tf.data input. Look at "
    "where it was: it may wait for a file, a server or a lock"
)
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


_LOCKS = re.compile(r"\b(flock|lockf|acquire)\(|(\b|_)lock\(|Lock\(")
"""A `block(x)` of a network is no lock."""


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


def group(found: Parting) -> str:
    """Return the process group of a parting as the end of a phrase. Empty for the default one."""
    name = found.group.removesuffix(NCCL)
    return f" of process group {name}" if found.call.numbered and name != "0" else ""


def told(found: Parting, ranks: Sequence[RankState]) -> tuple[str, str]:
    """Return the title and the line below it."""
    call = found.call
    of = group(found)
    others = [rank.rank for rank in ranks if rank.rank not in found.missing]
    if found.kind == "circle":
        each = [f"rank {rank} waits in {call}" for rank, call in found.calls.items()]
        return "the ranks wait for each other", ", ".join(each[:MOST_CALLS])
    if found.kind == "together":
        return f"all ranks wait in {call}{of}", "each of them has called it, and none has finished it"
    if found.kind == "extra":
        return f"{named(found.missing)} called one collective more than the others", f"{call}{of}"
    if found.kind == "skipped":
        return f"{named(found.missing)} left out one collective", f"{named(others)} called {call}{of}"
    place = f"at collective #{call.number}{of}" if call.numbered else f"in {call.operation}"
    return f"the ranks differ {place}", ", ".join(kinds(found.calls))


def kinds(calls: Mapping[int, Call]) -> list[str]:
    """Return what the ranks have called, the call of most ranks first."""
    found: dict[str, list[int]] = {}
    for rank, call in calls.items():
        found.setdefault(call.kind, []).append(rank)
    by_size = sorted(found.items(), key=lambda item: -len(item[1]))
    each = [f"{named(ranks)} {what}" for what, ranks in by_size]
    left = len(each) - MOST_CALLS
    return [*each[:MOST_CALLS], f"and {left} others"] if left > 0 else each
