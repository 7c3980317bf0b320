"""What the card says where the ranks of a failed or stopped run have parted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...folder import RunFolder
from ...job import RankState, State, Status
from ...text.fold import named
from ...text.safe import one_line
from ...worker.output.events import COLLECTIVES
from .. import reader
from ..logs.last_lines import last_bytes, last_lines
from . import stacks, wording
from .collectives import Parting, Record, first_parting, parse
from .failures import RankError, is_symptom
from .finding import Finding
from .horovod_stalls import missing_ranks
from .places import sentences

__all__ = ["finding", "headline"]

_TAIL_BYTES = 256 << 10
"""A record has up to 20 kB, and only a result follows it."""
_ONE_REQUEST_S = 5.0
"""Ranks that are asked at the same time answer within so many seconds."""
_MOMENT_S = 10.0
_MOST_CALLS = 3
_SHUT_DOWN = "Horovod has been shut down"
_SAME_ORDER = "every rank must call the same collectives in the same order: look for an `if` on the rank"
_UNEVEN = (
    "{missing} had less input, or an `if` on the rank has skipped a call. For inputs of different lengths "
    "use dist.shard(data, even=True), a DistributedSampler, or Join of torch and hvd.join() of Horovod"
)
_LATE = "look at where {missing} was: it takes longer there, or an `if` on the rank has skipped the call"
_ALIKE = "every rank must pass tensors of the same shape and type: look at the last, smaller batch of a rank"


@dataclass(frozen=True)
class _Cause:
    title: str
    what: str
    hint: str


def finding(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Return how the ranks have parted, if that is the cause of the run's end."""
    cause = _cause(folder, status.attempt, status.ranks, errors)
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


def _cause(
    folder: RunFolder, attempt: int, ranks: Sequence[RankState], errors: Sequence[RankError]
) -> _Cause | None:
    found = _parting(folder, attempt, ranks, errors)
    if found is not None:
        return _Cause(*_told(found, ranks, errors), _hint(found, ranks))
    if any(not error.collateral and not is_symptom(error) for error in errors):
        return None
    return _of_horovod(folder, attempt, len(ranks)) or _early_end(folder, attempt, ranks, errors)


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
    wait = "waits" if len(others) == 1 else "wait"
    return _Cause(
        f"{named(of)} did not come to {one_line(tensor, 120)}",
        f"{named(others)} {wait} in it",
        _LATE.format(missing=named(of)),
    )


def _early_end(
    folder: RunFolder, attempt: int, ranks: Sequence[RankState], errors: Sequence[RankError]
) -> _Cause | None:
    """Return the cause if Horovod says in all errors that a rank is gone, and one had ended its cell before.

    Horovod's collectives have no record.
    """
    if not errors or not all(_SHUT_DOWN in error.message for error in errors):
        return None
    failed = {error.rank for error in errors}
    first = min(errors, key=lambda error: error.time)
    done = [
        rank.rank
        for rank in ranks
        if rank.rank not in failed
        and any(e["time"] <= first.time for e in _last_events(folder, attempt, rank.rank, "result", 1))
    ]
    if not done:
        return None
    what = f"{named(failed)} then failed: {wording.what(first)}"
    return _Cause(
        f"{named(done)} ended normally before the others", what, _UNEVEN.format(missing=named(done))
    )


def _parting(
    folder: RunFolder, attempt: int, ranks: Sequence[RankState], errors: Sequence[RankError]
) -> Parting | None:
    records = _records(folder, attempt, len(ranks))
    if len(records) < 2 and not any(record.waits_in for record in records.values()):
        return None
    ended = [rank.rank for rank in ranks if rank.state.ended and rank.state is not State.STOPPED]
    found = first_parting(records, ended, len(ranks))
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


def _is_current(time: float, newest: float, final: Mapping[str, Any] | None) -> bool:
    """Return whether a rank's answer belongs to the last request, and the rank went on for a moment only."""
    return time >= newest - _ONE_REQUEST_S and (final is None or final["time"] - time < _MOMENT_S)


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


def _told(found: Parting, ranks: Sequence[RankState], errors: Sequence[RankError]) -> tuple[str, str]:
    """Return the title and the line below it."""
    group = "" if found.group == "0" else f" of process group {found.group}"
    call = found.call
    if found.kind == "circle":
        each = [f"rank {rank} waits in {call}" for rank, call in found.calls.items()]
        return "the ranks wait for each other", ", ".join(each[:_MOST_CALLS])
    if found.kind == "differ":
        kinds: dict[str, list[int]] = {}
        for rank, other in found.calls.items():
            inputs = f" of {other.inputs}" if other.inputs else ""
            kinds.setdefault(f"{other.operation}{inputs}", []).append(rank)
        by_size = sorted(kinds.items(), key=lambda item: -len(item[1]))
        each = [f"{named(of)} called {what}" for what, of in by_size]
        more = f", and {len(each) - _MOST_CALLS} others" if len(each) > _MOST_CALLS else ""
        return f"the ranks differ at collective #{call.number}{group}", ", ".join(each[:_MOST_CALLS]) + more
    missing, waiting = named(found.missing), sorted(found.calls)
    raised = {error.rank for error in errors}.issuperset(waiting)
    wait = "failed" if raised else "waits" if len(waiting) == 1 else "wait"
    if _left(found, ranks):
        after = f"after #{found.finished}" if found.finished else "before the others"
        return f"{missing} ended normally {after}", f"{named(waiting)} {wait} in {call}{group}"
    what = f"{named(waiting)} {wait} in it"
    if found.finished is not None:
        has = "has" if len(found.missing) == 1 else "have"
        what += f", and {missing} {has} {f'finished #{found.finished}' if found.finished else 'called none'}"
    return f"{missing} did not come to {call}{group}", what


def _left(found: Parting, ranks: Sequence[RankState]) -> bool:
    """Return whether the missing ranks have ended normally."""
    return all(ranks[rank].state is State.SUCCEEDED for rank in found.missing)


def _hint(found: Parting, ranks: Sequence[RankState]) -> str:
    if found.kind == "differ":
        return _ALIKE if len({call.operation for call in found.calls.values()}) == 1 else _SAME_ORDER
    if found.kind == "circle":
        return _SAME_ORDER
    missing = named(found.missing)
    return (_UNEVEN if _left(found, ranks) else _LATE).format(missing=missing)
