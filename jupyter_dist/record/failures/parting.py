"""What the card says where the ranks of a failed or stopped run have parted."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Container, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

from ...folder import RunFolder
from ...job import RankState, State, Status
from ...text.fold import named
from ...text.safe import one_line
from ...worker import listing
from ...worker.output.events import COLLECTIVES
from .. import reader
from ..logs.last_lines import last_bytes, last_lines
from . import stacks, wording
from .collectives import LONG_S, Parting, Record, first_parting, parse
from .failures import RankError, is_symptom
from .finding import Finding
from .horovod_stalls import missing_ranks
from .places import sentences, waiting_call

__all__ = ["finding", "headline", "of_running"]

_TAIL_BYTES = 256 << 10
"""A record has up to 20 kB, and only a result follows it."""
_ONE_REQUEST_S = 5.0
"""Ranks that are asked at the same time answer within so many seconds."""
_ANSWER_S = 2.0
"""A rank that has a record writes it within so many seconds after its stacks."""
_MOMENT_S = 10.0
_MOST_CALLS = 3
_SAME_ORDER = "every rank must call the same collectives in the same order: look for an `if` on the rank"
_UNEVEN = (
    "{missing} had less input, or an `if` on the rank has skipped a call. For inputs of different lengths "
    "use dist.shard(data, even=True), a DistributedSampler, or Join of torch and hvd.join() of Horovod"
)
_LATE = (
    "look at where {missing} {was}: the code takes longer there, or an `if` on the rank has skipped the call"
)
_ALIKE = (
    "every rank must call the same collectives with tensors of the same shape and type: look for an `if` on "
    "the rank, and for a last, smaller batch"
)
_MESSAGES = (
    "each recv needs a send of the other rank, and a send may wait for the recv: look at the order of the "
    "calls, or use batch_isend_irecv"
)
_ALL_CALL = "every rank must call it: look for an `if` on the rank around the call"
_SILENT = (
    "look for os._exit() in the code of {missing} and of its libraries: it ends a process without a word"
)
_ONE_ROOT = "every rank must name the same src or dst: write the same number, not the rank's own"
_SIZE = "the run has {ranks} ranks: leave out world_size, rank and WORLD_SIZE, or call dist.init()"
_NETWORK = (
    "all of them have called it: look whether the hosts reach each other, and whether a firewall or a wrong "
    "network interface is between them (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)"
)
_SAYS_CLOSED = re.compile(r"Horovod has been shut down|gloo|nccl|Collective ?(Reduce|Gather|Bcast|ops)", re.I)
_BARRIER = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")


@dataclass(frozen=True)
class _Cause:
    title: str
    what: str
    hint: str


def finding(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Return how the ranks have parted, if that is the cause of the run's end."""
    cause = _cause(folder, status.attempt, status.ranks, errors) or _of_stacks(folder, status, errors)
    if cause is None:
        return Finding()
    # Of a run in which no rank has failed, evidence.stalled returns the places.
    failed = {error.rank for error in errors}
    left = failed.union(r.rank for r in status.ranks if r.state is State.SUCCEEDED)
    places = sentences(stacks.kept(folder)[0].groups, left) if errors and not errors[0].collateral else ()
    return Finding(cause.title, cause.what, hints=(cause.hint,), places=places)


def headline(
    folder: RunFolder, attempt: int, ranks: Sequence[RankState], errors: Sequence[RankError]
) -> str | None:
    """Return the cause in one line, for a run whose ranks have just ended. None if it is another one."""
    cause = _cause(folder, attempt, ranks, errors)
    return None if cause is None else f"{cause.title}: {cause.what}"


def of_running(folder: RunFolder, status: Status) -> str:
    """Return how the ranks of a run that still runs have parted, as far as they were asked. May be empty."""
    if status.state.ended:
        return ""
    _, taken = stacks.kept(folder)
    if time.time() - taken < _ANSWER_S:
        running = {rank.rank for rank in status.ranks if rank.state is State.RUNNING}
        records = _records(folder, status.attempt, len(status.ranks))
        if records and running - records.keys():
            return ""  # the other ranks are about to write theirs
    found = finding(folder, status, ())
    return f"{found.title}: {found.what}" if found.title else ""


def _cause(
    folder: RunFolder, attempt: int, ranks: Sequence[RankState], errors: Sequence[RankError]
) -> _Cause | None:
    finished = _finished(folder, attempt, ranks)
    found = _parting(folder, attempt, ranks, errors, finished)
    if found is not None:
        return _of_parting(found, ranks, errors, finished)
    monitored = _of_monitored_barrier(errors, ranks)
    if monitored is not None:
        return monitored
    if any(not error.collateral and not is_symptom(error) for error in errors):
        return None
    return (
        _of_horovod(folder, attempt, len(ranks))
        or _early_end(errors, finished)
        or _of_file_barrier(folder, attempt, ranks, errors)
    )


def _of_monitored_barrier(errors: Sequence[RankError], ranks: Sequence[RankState]) -> _Cause | None:
    """Return the cause that torch's monitored_barrier names on rank 0."""
    for error in errors:
        match = _BARRIER.search(error.message)
        missing = [int(rank) for rank in re.findall(r"\d+", match[1])] if match else []
        if missing and max(missing) < len(ranks):
            others = [rank.rank for rank in ranks if rank.rank not in missing]
            what = f"{named(others)} waited in it until its timeout"
            return _missing(missing, "monitored_barrier", what)
    return None


def _missing(missing: Sequence[int], call: str, what: str) -> _Cause:
    was = "was" if len(missing) == 1 else "were"
    title = f"{named(missing)} did not reach {call}"
    return _Cause(title, what, _LATE.format(missing=named(missing), was=was))


def _of_file_barrier(
    folder: RunFolder, attempt: int, ranks: Sequence[RankState], errors: Sequence[RankError]
) -> _Cause | None:
    """Return the ranks that were not at the last `dist.barrier()` without a process group.

    The others had waited there for a while when their stacks were taken.
    """
    if errors:
        return None
    places = folder.attempt(attempt) / "barriers"
    meetings = listing.numbers(places)
    place = places / str(meetings[-1]) if meetings else places
    came = listing.numbers(place) if meetings else []
    try:
        waited_s = stacks.kept(folder)[1] - min((place / str(rank)).stat().st_mtime for rank in came)
    except (OSError, ValueError):  # nobody is there, or the barrier is over
        return None
    if waited_s < LONG_S:
        return None
    missing = [rank.rank for rank in ranks if rank.rank not in came]
    if not missing:
        return None
    return _missing(missing, "dist.barrier()", f"{named(came)} {_waits(came)} in it")


def _of_stacks(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> _Cause | None:
    """Return the ranks that are elsewhere while the others are in a collective, by their stacks.

    Ranks that have just printed may only be slower than the others.
    """
    if errors:
        return None
    found, taken = stacks.kept(folder)
    ranks, attempt = status.ranks, status.attempt
    if not found.groups or not stacks.show_the_end(taken, status):
        return None
    if not all(_silent(folder, attempt, rank.rank, taken) for rank in ranks):
        return None
    calls = {rank: call for of, frames in found.groups for rank in of if (call := waiting_call(frames))}
    missing = [rank.rank for rank in ranks if rank.rank not in calls]
    if not calls or not missing or len({*calls.values()}) > 1:
        return None
    ended = all(ranks[rank].state is State.SUCCEEDED for rank in missing)
    what = f"{named(sorted(calls))} {_waits(calls)} in it"
    cause = _missing(missing, next(iter(calls.values())), what)
    return replace(cause, hint=_UNEVEN.format(missing=named(missing))) if ended else cause


def _silent(folder: RunFolder, attempt: int, rank: int, taken: float) -> bool:
    """Return whether a rank had printed and logged nothing for a while when its stack was taken."""
    begun = taken - _ONE_REQUEST_S
    files = folder.rank(attempt, rank)
    with contextlib.suppress(OSError):
        if begun < files.output.stat().st_mtime <= taken:
            return False
    data, _ = last_bytes(files.events, _TAIL_BYTES)
    events = reader.parse_lines([line for line in data.split(b"\n") if line])
    told = [event.get("time") for event in events if event.get("kind") != COLLECTIVES]
    return not any(isinstance(when, float) and begun < when <= taken for when in told)


def _waits(ranks: Sized) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _of_horovod(folder: RunFolder, attempt: int, world_size: int) -> _Cause | None:
    """Return the cause in the last warning of Horovod's stall inspector, which is in the log of rank 0."""
    lines = last_lines(folder.rank(attempt, 0).output)
    missing = missing_ranks(lines, world_size)
    if not missing:
        return None
    each = [f"{named(of)} did not submit {one_line(tensor, 120)}" for tensor, of in missing.items()]
    if len(missing) > 1:
        return _Cause("the ranks wait for different tensors", ", ".join(each[:_MOST_CALLS]), _SAME_ORDER)
    ((tensor, of),) = missing.items()
    others = sorted(set(range(world_size)) - set(of))
    return _missing(of, one_line(tensor, 120), f"{named(others)} {_waits(others)} in it")


def _early_end(errors: Sequence[RankError], finished: Mapping[int, float]) -> _Cause | None:
    """Return the cause if all errors say that a collective is gone, and a rank had ended its cell before."""
    if not errors or not all(_SAYS_CLOSED.search(f"{error.type}: {error.message}") for error in errors):
        return None
    failed = {error.rank for error in errors}
    first = min(errors, key=lambda error: error.time)
    done = sorted(rank for rank, ended in finished.items() if rank not in failed and ended <= first.time)
    if not done:
        return None
    what = f"{named(failed)} then failed: {wording.what(first)}"
    return _Cause(
        f"{named(done)} ended normally before the others", what, _UNEVEN.format(missing=named(done))
    )


def _finished(folder: RunFolder, attempt: int, ranks: Sequence[RankState]) -> dict[int, float]:
    """Return the ranks that have finished their cell, and when. Their processes may still run."""
    found = {}
    for rank in ranks:
        if rank.state is not State.FAILED:
            for event in _last_events(folder, attempt, rank.rank, "result", 1):
                found[rank.rank] = float(event["time"])
    return found


def _parting(
    folder: RunFolder,
    attempt: int,
    ranks: Sequence[RankState],
    errors: Sequence[RankError],
    finished: Container[int],
) -> Parting | None:
    records = _records(folder, attempt, len(ranks))
    if len(records) < 2 and not any(record.waits_in for record in records.values()):
        return None
    ended = [
        rank.rank
        for rank in ranks
        if rank.rank in finished or (rank.state.ended and rank.state is not State.STOPPED)
    ]
    killed = [rank.rank for rank in ranks if rank.state in (State.FAILED, State.LOST)]
    found = first_parting(records, ended, len(ranks), killed)
    if found is None or found.kind != "missing":
        return found
    # A rank that failed by itself says more in its own error than in what it did not call any more.
    by_itself = {error.rank for error in errors if not error.collateral and not is_symptom(error)}
    return None if by_itself.intersection(found.missing) else found


def _records(folder: RunFolder, attempt: int, world_size: int) -> dict[int, Record]:
    """Return the last record of each rank from before the ranks were ended.

    A rank that was asked while it waited, and was then ended, has written again when others had left it.
    """
    asked: dict[int, dict[str, Any]] = {}
    final: dict[int, dict[str, Any]] = {}
    for rank in range(world_size):
        for event in _last_events(folder, attempt, rank, COLLECTIVES, 2):
            (final if event.get("final") is True else asked).setdefault(rank, event)
    newest = max((event["time"] for event in asked.values()), default=0.0)
    found = {}
    for rank in asked.keys() | final.keys():
        answer, last = asked.get(rank), final.get(rank)
        current = answer is not None and _is_current(answer["time"], newest, last)
        chosen = answer if current else last
        record = None if chosen is None else parse(chosen)
        if record is not None:
            found[rank] = record
    return found


def _is_current(when: float, newest: float, final: Mapping[str, Any] | None) -> bool:
    """Return whether a rank's answer belongs to the last request, and the rank went on for a moment only."""
    return when >= newest - _ONE_REQUEST_S and (final is None or final["time"] - when < _MOMENT_S)


def _last_events(folder: RunFolder, attempt: int, rank: int, kind: str, most: int) -> list[dict[str, Any]]:
    """Return the last events of one kind, the newest first."""
    data, _ = last_bytes(folder.rank(attempt, rank).events, _TAIL_BYTES)
    mark = f'"kind": "{kind}"'.encode()
    found: list[dict[str, Any]] = []
    for line in reversed(data.split(b"\n")):
        if len(found) < most and mark in line:
            (event,) = reader.parse_lines([line]) or [{}]
            if isinstance(event.get("time"), float):
                found.append(event)
    return found


def _of_parting(
    found: Parting, ranks: Sequence[RankState], errors: Sequence[RankError], finished: Container[int]
) -> _Cause:
    if found.kind != "missing":
        return _Cause(*_told(found, ranks), _hint(found, ranks))
    call, missing, waiting = found.call, named(found.missing), sorted(found.calls)
    raised = {error.rank for error in errors}.issuperset(waiting)
    wait = "failed" if raised else _waits(waiting)
    group = _group(found)
    if all(rank in finished or ranks[rank].state is State.SUCCEEDED for rank in found.missing):
        what = f"{named(waiting)} {wait} in {call}{group}"
        if not any(rank in finished for rank in found.missing) and found.finished is None:
            return _Cause(f"{missing} exited in its cell", what, _SILENT.format(missing=missing))
        after = f"after #{found.finished}" if found.finished and call.numbered else "before the others"
        hint = _ALL_CALL if call.needs_all else _UNEVEN.format(missing=missing)
        return _Cause(f"{missing} ended normally {after}", what, hint)
    what = f"{named(waiting)} {wait} in it"
    if found.finished is not None and call.numbered:
        has = "has" if len(found.missing) == 1 else "have"
        what += f", and {missing} {has} {f'finished #{found.finished}' if found.finished else 'called none'}"
    return _missing(found.missing, f"{call}{group}", what)


def _group(found: Parting) -> str:
    return f" of process group {found.group}" if found.call.numbered and found.group != "0" else ""


def _told(found: Parting, ranks: Sequence[RankState]) -> tuple[str, str]:
    """Return the title and the line below it."""
    call = found.call
    group = _group(found)
    others = [rank.rank for rank in ranks if rank.rank not in found.missing]
    if found.kind == "circle":
        each = [f"rank {rank} waits in {call}" for rank, call in found.calls.items()]
        return "the ranks wait for each other", ", ".join(each[:_MOST_CALLS])
    if found.kind == "together":
        return f"all ranks wait in {call}{group}", "each of them has called it, and none has finished it"
    if found.kind == "extra":
        return f"{named(found.missing)} called one collective more than the others", f"{call}{group}"
    if found.kind == "skipped":
        return f"{named(found.missing)} left out one collective", f"{named(others)} called {call}{group}"
    kinds: dict[str, list[int]] = {}
    for rank, other in found.calls.items():
        kinds.setdefault(other.kind, []).append(rank)
    by_size = sorted(kinds.items(), key=lambda item: -len(item[1]))
    each = [f"{named(of)} {what}" for what, of in by_size]
    more = f", and {len(each) - _MOST_CALLS} others" if len(each) > _MOST_CALLS else ""
    place = f"at collective #{call.number}{group}" if call.numbered else f"in {call.operation}"
    return f"the ranks differ {place}", ", ".join(each[:_MOST_CALLS]) + more


def _hint(found: Parting, ranks: Sequence[RankState]) -> str:
    calls = list(found.calls.values())
    if found.kind == "differ":
        if not all(call.same_root(calls[0]) for call in calls):
            return _ONE_ROOT
        return _ALIKE if len({call.operation for call in calls}) == 1 else _SAME_ORDER
    if found.kind == "together":
        opens = calls[0].operation.startswith("init_process_group")
        return _SIZE.format(ranks=len(ranks)) if opens else _NETWORK
    return _MESSAGES if any(call.is_message for call in calls) else _SAME_ORDER
