"""What the card says where the ranks of a failed or stopped run have parted."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Container, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, replace
from signal import SIGABRT
from typing import Any

from ...folder import RunFolder
from ...job import RankState, State, Status
from ...text.fold import named
from ...text.safe import one_line
from ...text.stack_dumps import Frame
from ...worker import listing
from ...worker.output.events import COLLECTIVES
from ...worker.rank.calls import TENSORFLOW
from .. import reader
from ..hints import EVENT, Hints
from ..logs.last_lines import last_bytes, last_lines
from . import parting_texts as texts
from . import stacks, wording
from .collectives import LONG_S, Parting, Record, first_parting, parse
from .failures import RankError, is_symptom
from .finding import Finding
from .horovod_stalls import missing_ranks
from .places import of_frames, sentences, waiting_call

__all__ = ["finding", "headline", "of_running"]

_ONE_REQUEST_S = 5.0
"""Ranks that are asked at the same time answer within so many seconds."""
_ANSWER_S = 2.0
"""A rank that has a record writes it within so many seconds after its stacks."""
_MOMENT_S = 10.0
_CRASH_BYTES = 256 << 10
_TOO_MUCH = re.compile(rb"gloo.*op\.preamble\.length <= op\.nbytes")
_SAYS_CLOSED = re.compile(r"Horovod has been shut down|gloo|nccl|Collective ?(Reduce|Gather|Bcast|ops)", re.I)
_BARRIER = re.compile(r"Ranks? ([\d, ]+) failed to pass monitoredBarrier")


@dataclass(frozen=True)
class _Cause:
    title: str
    what: str
    hint: str
    missing: tuple[int, ...] = ()
    """The ranks that have left out a call, if that is the cause."""
    places: tuple[str, ...] = ()


def finding(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Return how the ranks have parted, if that is the cause of the run's end."""
    cause = _cause(folder, status.attempt, status.ranks, errors) or _of_stacks(folder, status, errors)
    if cause is None:
        return Finding()
    # Of a run in which no rank has failed, evidence.stalled returns the places.
    failed = {error.rank for error in errors}
    left = failed.union(r.rank for r in status.ranks if r.state is State.SUCCEEDED)
    places = sentences(stacks.kept(folder)[0].groups, left) if errors and not errors[0].collateral else ()
    places = (*cause.places, *places, *_others(errors))
    hints = [cause.hint]
    if cause.missing and not errors:
        others = {r.rank for r in status.ranks}.difference(cause.missing)
        if texts.locks(sentences(stacks.kept(folder)[0].groups, others)):
            hints.append(texts.LOCK)
    hints += _thread_errors(folder, status.attempt, cause.missing)
    return Finding(cause.title, cause.what, hints=tuple(hints), places=places)


def _thread_errors(folder: RunFolder, attempt: int, ranks: Sequence[int]) -> list[str]:
    """Return the exceptions that have ended threads of these ranks: a rank may wait for such a thread."""
    hints = Hints()
    for rank in ranks[: texts.MOST_CALLS]:
        for event in reversed(reader.last_events(folder.rank(attempt, rank), EVENT)):
            hints.take(rank, event)
    return [f"{named(hint.ranks)}: {hint.text}" for hint in hints.found() if hint.name == "thread-error"]


def _others(errors: Sequence[RankError]) -> tuple[str, ...]:
    """Return where ranks have failed, except those at the place of the first one (evidence.traceback)."""
    found: dict[str, list[int]] = {}
    for error in errors:
        found.setdefault(of_frames(error.frames), []).append(error.rank)
    if errors and not errors[0].collateral:
        del found[of_frames(errors[0].frames)]
    return tuple(f"{named(ranks)} {_was(ranks)} {place}" for place, ranks in found.items() if place)


def headline(
    folder: RunFolder, attempt: int, ranks: Sequence[RankState], errors: Sequence[RankError]
) -> str | None:
    """Return one line on how the ranks of an ended run differ. None if that did not end the run."""
    cause = _cause(folder, attempt, ranks, errors)
    return None if cause is None else f"{cause.title}: {cause.what}"


def of_running(folder: RunFolder, status: Status) -> str:
    """Return one line on how the ranks of a running run differ. Empty if the records do not show it."""
    if status.state.ended:
        return ""
    _, taken = stacks.kept(folder)
    if time.time() - taken < _ANSWER_S:
        running = {rank.rank for rank in status.ranks if rank.state is State.RUNNING}
        records = _records(folder, status.attempt, len(status.ranks))
        if records and running - records.keys():
            return ""  # the other ranks are about to write their records
    found = finding(folder, status, ())
    return f"{found.title}: {found.what}" if found.title else ""


def _cause(
    folder: RunFolder, attempt: int, ranks: Sequence[RankState], errors: Sequence[RankError]
) -> _Cause | None:
    finished = _finished(folder, attempt, ranks)
    found = _parting(folder, attempt, ranks, errors, finished)
    if found is not None and found.kind == "together" and found.group.startswith(TENSORFLOW):
        late = _of_input(folder, found)
        if late is not None:
            return late
        found = None  # they may all compute
    if found is not None:
        return _of_parting(found, ranks, errors, finished)
    monitored = _of_monitored_barrier(errors, ranks)
    if monitored is not None:
        return monitored
    if any(not error.collateral and not is_symptom(error) for error in errors):
        return None
    return (
        _of_horovod(folder, attempt, len(ranks))
        or _early_end(errors, ranks, finished)
        or _of_gloo(folder, attempt, ranks, errors)
        or _of_file_barrier(folder, attempt, ranks, errors)
    )


def _of_input(folder: RunFolder, found: Parting) -> _Cause | None:
    """Return the ranks that read their input in code of the user, such as a generator, while others do not.

    The main thread of each rank is in TensorFlow.
    """
    threads = stacks.kept(folder)[0].inputs()
    missing = sorted(rank for rank in found.calls if threads.get(rank))
    others = sorted(found.calls.keys() - {*missing})
    if not missing or not others:
        return None
    return _Cause(
        f"{named(missing)} {'has' if len(missing) == 1 else 'have'} no data for {found.call}",
        f"{named(others)} {_waits(others)} in it",
        texts.INPUT.format(missing=named(missing)),
        (*missing,),
        tuple(
            f"the input of rank {rank} was {of_frames([asdict(frame) for frame in threads[rank]])}"
            for rank in missing
        ),
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
    title = f"{named(missing)} did not reach {call}"
    return _Cause(title, what, texts.LATE.format(missing=named(missing), was=_was(missing)), (*missing,))


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
    even = texts.EVEN_KERAS if "TensorFlow" in cause.title else texts.EVEN
    return replace(cause, hint=texts.UNEVEN.format(missing=named(missing), even=even)) if ended else cause


def _silent(folder: RunFolder, attempt: int, rank: int, taken: float) -> bool:
    """Return whether a rank had printed and logged nothing for a while when its stack was taken."""
    begun = taken - _ONE_REQUEST_S
    files = folder.rank(attempt, rank)
    with contextlib.suppress(OSError):
        if begun < files.output.stat().st_mtime <= taken:
            return False
    events = reader.last_events(files)
    told = [event["time"] for event in events if event.get("kind") != COLLECTIVES]
    return not any(begun < when <= taken for when in told)


def _was(ranks: Sized) -> str:
    return "was" if len(ranks) == 1 else "were"


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
        return _Cause(
            "the ranks wait for different tensors", ", ".join(each[: texts.MOST_CALLS]), texts.SAME_ORDER
        )
    ((tensor, of),) = missing.items()
    others = sorted(set(range(world_size)) - set(of))
    return _missing(of, one_line(tensor, 120), f"{named(others)} {_waits(others)} in it")


def _early_end(
    errors: Sequence[RankError], ranks: Sequence[RankState], finished: Mapping[int, float]
) -> _Cause | None:
    """Return the cause if all errors say that a collective is gone, and a rank had ended its cell before."""
    if not errors or not all(_SAYS_CLOSED.search(f"{error.type}: {error.message}") for error in errors):
        return None
    failed = {error.rank for error in errors}
    first = min(errors, key=lambda error: error.time)
    exited = {r.rank: r.ended for r in ranks if r.state is State.SUCCEEDED and r.ended is not None}
    ended = {**exited, **finished}
    done = sorted(rank for rank, when in ended.items() if rank not in failed and when <= first.time)
    if not done:
        return None
    what = f"{named(failed)} then failed: {wording.what(first)}"
    even = texts.EVEN_KERAS if "Collective" in first.message else texts.EVEN
    hint = texts.UNEVEN.format(missing=named(done), even=even)
    return _Cause(f"{named(done)} ended normally before the others", what, hint)


def _of_gloo(
    folder: RunFolder, attempt: int, ranks: Sequence[RankState], errors: Sequence[RankError]
) -> _Cause | None:
    """Return the cause if gloo has aborted a rank that received more data than its call has room for.

    Such a rank leaves no record. Python's report of the crash shows what it had called.
    """
    for error in errors:
        if error.signal != SIGABRT:
            continue
        log, _ = last_bytes(folder.rank(attempt, error.rank).output, _CRASH_BYTES)
        if not _TOO_MUCH.search(log):
            continue
        call = waiting_call([Frame(**frame) for frame in error.frames])
        own = f"rank {error.rank} expected less data{f' in its {call}' if call else ''}"
        if call.endswith("recv"):
            return _Cause("a message is larger than the tensor that receives it", own, texts.ALIKE_MESSAGE)
        others = {
            rank: last
            for rank, record in _records(folder, attempt, len(ranks)).items()
            if (last := record.last) is not None
        }
        numbers = {call.number for call in others.values()}
        if len(numbers) > 1:  # a rank that only sends may be some collectives ahead
            others = {}
        place = f"at collective #{numbers.pop()}" if len(numbers) == 1 else "in a collective"
        return _Cause(f"the ranks differ {place}", ", ".join([*texts.kinds(others), own]), texts.ALIKE)
    return None


def _finished(folder: RunFolder, attempt: int, ranks: Sequence[RankState]) -> dict[int, float]:
    """Return the ranks that have finished their cell, and when. Their processes may still run."""
    found = {}
    for rank in ranks:
        if rank.state is not State.FAILED:
            for event in reader.last_events(folder.rank(attempt, rank.rank), "result")[:1]:
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
        for event in reader.last_events(folder.rank(attempt, rank), COLLECTIVES)[:2]:
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


def _of_parting(
    found: Parting, ranks: Sequence[RankState], errors: Sequence[RankError], finished: Container[int]
) -> _Cause:
    if found.kind != "missing":
        return _Cause(*texts.told(found, ranks), texts.of(found, ranks))
    call, missing, waiting = found.call, named(found.missing), sorted(found.calls)
    raised = {error.rank for error in errors}.issuperset(waiting)
    wait = "failed" if raised else _waits(waiting)
    group = texts.group(found)
    if all(rank in finished or ranks[rank].state is State.SUCCEEDED for rank in found.missing):
        what = f"{named(waiting)} {wait} in {call}{group}"
        if not any(rank in finished for rank in found.missing) and found.finished is None:
            return _Cause(f"{missing} exited in its cell", what, texts.SILENT.format(missing=missing))
        after = f"after #{found.finished}" if found.finished and call.numbered else "before the others"
        even = texts.EVEN_KERAS if found.group.startswith(TENSORFLOW) else texts.EVEN
        hint = texts.ALL_CALL if call.needs_all else texts.UNEVEN.format(missing=missing, even=even)
        return _Cause(f"{missing} ended normally {after}", what, hint)
    what = f"{named(waiting)} {wait} in it"
    if found.finished is not None and call.numbered:
        has = "has" if len(found.missing) == 1 else "have"
        what += f", and {missing} {has} {f'finished #{found.finished}' if found.finished else 'called none'}"
    return _missing(found.missing, f"{call}{group}", what)
