"""Request for a trace of a run's training steps, with a wait for the ranks' answers."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import backends
from ..errors import DistError, InputError
from ..folder import RunFolder, make_private, write_bytes
from ..job import Job, State, Status, rank_count
from ..queries.rank_reports import said
from ..record import reader
from ..record.failures.stacks import running
from ..record.growing_file import GrowingFile
from ..record.scaling.measurement import measure
from ..record.trace_merge import RankTrace, merged
from ..text import fold
from ..text.safe import one_line
from ..worker import layout
from ..worker.output import events

__all__ = ["Trace", "take"]

_STEPS = 10
_LEAD_S, _LEAD_ELSEWHERE_S = 1.0, 6.0
"""Time until all ranks have seen the request. On this machine, they look for it twice a second."""
_ANSWER_S, _ANSWER_ELSEWHERE_S = 30.0, 120.0
"""Time in which a rank must end a step. After that, the request does not count. A mailbox may be slow."""
_STEPS_TO_ANSWER = 3
"""If these steps take longer, a rank has that time."""
_DONE_S = 300.0
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Trace:
    """A trace that was taken."""

    path: Path
    ranks: tuple[int, ...]
    problems: Mapping[int, str]
    """The ranks that are missing, and why."""

    def __str__(self) -> str:
        told = f"The trace of {fold.named(self.ranks)} is in {self.path}. Open it at https://ui.perfetto.dev."
        return "\n".join(
            [told, *(f"note: it is not complete. {text}." for text in _by_reason(self.problems))]
        )


def _by_reason(problems: Mapping[int, str]) -> list[str]:
    """Return for example `Rank 0,2-3: it has not imported torch`."""
    ranks: dict[str, list[int]] = {}
    for rank, why in sorted(problems.items()):
        ranks.setdefault(why, []).append(rank)
    return [f"Rank {fold.ranges(those, 60)}: {why}" for why, those in ranks.items()]


def take(folder: RunFolder, steps: int | None = None, for_s: float | None = None) -> Trace:
    """Trace some steps of all running ranks. Blocks until the trace is in the run's folder.

    `steps`: the number of steps, by default 10. `for_s`: the length of the trace in seconds instead.

    The ranks continue to train. Raises InputError, and DistError if no rank can be traced.
    """
    if steps is not None and for_s is not None:
        raise InputError("A trace has either a number of steps or a length. Remove one of them")
    status, job = reader.status(folder), reader.job(folder)
    _check(folder, status, job)
    attempt, live = running(folder)
    answers = _Answers(folder, attempt, live)
    here = backends.declared(job.backend).capabilities.visible
    id, at = secrets.token_hex(4), time.time() + (_LEAD_S if here else _LEAD_ELSEWHERE_S)
    answer_s = _ANSWER_S if here else _ANSWER_ELSEWHERE_S
    until = at + max(answer_s, _STEPS_TO_ANSWER * _step_s(folder, job, status))
    about = {"id": id, "at": at, "until": until, "steps": steps, "seconds": for_s}
    if for_s is None:
        about["steps"] = steps or _STEPS
    try:
        folder.request(layout.TRACE_REQUEST, json.dumps(about))
    except OSError as error:
        raise DistError(f"cannot ask run {folder.id} for a trace: {error}") from error
    try:
        _wait(folder, answers, id, until, until + (for_s or 0.0) + _DONE_S)
    finally:
        (folder.requests / layout.TRACE_REQUEST).unlink(missing_ok=True)
    return _written(folder, attempt, answers, live, id)


def _step_s(folder: RunFolder, job: Job, status: Status) -> float:
    size = rank_count(job, status)
    found = measure(said(folder, status.attempt, size).refresh().steps, size)
    return 0.0 if found is None else found.step_s


def _check(folder: RunFolder, status: Status, job: Job) -> None:
    if status.state.ended:
        raise DistError(f"Run {folder.id} has ended ({status.state}), so it cannot be traced.")
    if job.tuning is not None:
        raise DistError(
            f"Run {folder.id} has no ranks of its own. Trace one of its trials: `%dist trace {folder.id}-t0`."
        )
    if not backends.declared(job.backend).capabilities.stacks:
        raise DistError(
            f"Run {folder.id} shows a job that others have started, so jupyter-dist cannot trace its ranks."
        )
    if not any(rank.state is State.RUNNING for rank in status.ranks):
        raise DistError(f"No rank of run {folder.id} is running yet. Wait for its first step, then trace it.")


class _Answers:
    """What the ranks have answered to requests since this object was made."""

    def __init__(self, folder: RunFolder, attempt: int, ranks: list[int]) -> None:
        self._files = {}
        for rank in ranks:
            file = self._files[rank] = GrowingFile(folder.rank(attempt, rank).events)
            file.skip_to_tail(0)
        self.last: dict[int, dict[str, Any]] = {}
        """By rank: the last answer."""

    def refresh(self, id: str) -> None:
        for rank, file in self._files.items():
            while data := file.read():
                for event in reader.parse_events(data, rank, 0):
                    if event.kind == events.TRACE and event.data.get("id") == id:
                        self.last[rank] = dict(event.data)

    def missing(self, *states: str) -> list[int]:
        """Return the ranks whose last answer is none of these."""
        return [rank for rank in self._files if self.last.get(rank, {}).get("state") not in states]


def _wait(folder: RunFolder, answers: _Answers, id: str, until: float, limit: float) -> None:
    while True:
        ended = reader.status(folder).state.ended
        answers.refresh(id)
        now = time.time()
        if not answers.missing("done", "failed") or ended or now > limit:
            return
        if now > until and not [rank for rank in answers.last if answers.last[rank]["state"] == "begun"]:
            return
        time.sleep(_PAUSE_S)


def _written(folder: RunFolder, attempt: int, answers: _Answers, live: list[int], id: str) -> Trace:
    """Write the file of all ranks that have answered. Raises DistError if there is none."""
    hosts = {rank.rank: rank.host or "" for rank in reader.status(folder).ranks}
    found: list[RankTrace] = []
    problems: dict[int, str] = {}
    for rank in live:
        told = answers.last.get(rank, {})
        if told.get("state") == "done":
            packed = _packed(folder, attempt, rank, int(told["bytes"]))
            if packed is not None:
                found.append(RankTrace(rank, hosts[rank], packed, told["ends"], float(told["offset_s"])))
                continue
            problems[rank] = "its file has not arrived"
        elif told.get("state") == "failed":
            problems[rank] = one_line(str(told.get("why")), 300)
        else:
            problems[rank] = "it has ended no training step" if not told else "its trace has not ended"
    if not found:
        raise DistError(
            f"Run {folder.id} was not traced. {'; '.join(_by_reason(problems)[:4])}. A trace needs torch, "
            "and begins at the end of a training step. The run continues."
        )
    path = folder.files / f"trace-{time.strftime('%H%M%S')}-{id}.json"
    try:
        make_private(folder.files)
        write_bytes(path, json.dumps(merged(found)).encode())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DistError(f"The traces of run {folder.id} cannot be joined: {error}") from error
    return Trace(path, tuple(trace.rank for trace in found), problems)


def _packed(folder: RunFolder, attempt: int, rank: int, size: int) -> bytes | None:
    """Return a rank's trace. It comes from another host after its answer."""
    path = folder.rank(attempt, rank).trace
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            data = b""
        if len(data) == size:
            return data
        time.sleep(_PAUSE_S)
    return None
