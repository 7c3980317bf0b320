"""Questions that a view asks about runs, answered from the disk as JSON.

The server's REST handlers and the widget's comm both answer with these, so a view sees the same
whichever it talks to. Run ids are whole ids; every other one raises RunNotFound and touches no file.
All of them may block on the disk; only `stacks` waits (5 s at most). Nothing here unpickles anything.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import manage
from ..errors import DistError, InputError
from ..job import State, rank_count
from ..launch import submission
from ..record import failures, reader
from ..record import stacks as _stacks
from ..text.format import signal_name
from . import logs, metric_curves, run_files, run_info
from .choices import backend_list as backends
from .choices import cluster_delete, cluster_duplicate, cluster_save, cluster_test
from .choices import cluster_list as clusters
from .ranks_said import said
from .run_info import find
from .watching import Watch

__all__ = [
    "Watch",
    "backends",
    "clean",
    "cluster_delete",
    "cluster_duplicate",
    "cluster_save",
    "cluster_test",
    "clusters",
    "curves",
    "disk_size",
    "errors",
    "file_download",
    "find",
    "log_download",
    "log_page",
    "log_search",
    "remove",
    "results",
    "run",
    "runs",
    "stacks",
    "stop",
]

_MAX_TEXT = 200_000
_MAX_FRAMES = 200


def runs(
    text: str = "",
    state: str | None = None,
    notebook: str | None = None,
    limit: int = 100,
    before: str | None = None,
) -> dict[str, Any]:
    """Runs, newest first: `{runs, total, notebooks, root, host, hint}`.

    `text`: words that all stand in the id, name, notebook, backend, state or reason. `state`: one or
    several with commas. `before`: the id after which (being older) to go on. `notebooks`: those of
    all runs, whatever fits. `hint` says where runs are looked for, when there are none at all.
    """
    return run_info.listing(text, state, notebook, limit, before)


def run(id: str) -> dict[str, Any]:
    """One run with its ranks, notes and cell."""
    return run_info.full(find(id))


def log_page(
    id: str,
    rank: int | None = None,
    attempt: int | None = None,
    start: int = 0,
    count: int = 200,
    launcher: str | None = None,
) -> dict[str, Any]:
    """Lines of one rank's log, of a launcher's, or of all ranks by time; see `logs.page`."""
    return logs.page(find(id), rank, attempt, start, count, launcher)


def log_search(
    id: str,
    rank: int | None = None,
    attempt: int | None = None,
    query: str = "",
    regex: bool = False,
    case: bool = False,
    limit: int = 1000,
    launcher: str | None = None,
) -> dict[str, Any]:
    """Search a whole log: `{count, hits: [line numbers], truncated}`."""
    return logs.search(find(id), rank, attempt, query, regex, case, limit, launcher)


def log_download(
    id: str, rank: int | None = None, attempt: int | None = None, launcher: str | None = None
) -> Iterator[bytes]:
    """A whole log in pieces: a rank's or launcher's own bytes, or all ranks' lines by time."""
    return logs.download(find(id), rank, attempt, launcher)


def file_download(id: str, file: str) -> Iterator[bytes]:
    """One of the run's `files`, in pieces."""
    return run_files.read(find(id), file)


def curves(
    id: str,
    attempt: int | None = None,
    points: int = 2000,
    names: Sequence[str] | None = None,
    version: str | None = None,
) -> dict[str, Any]:
    """The run's metrics to draw; see `metric_curves.curves`."""
    return metric_curves.curves(find(id), attempt, points, names, version)


def errors(id: str, attempt: int | None = None) -> list[dict[str, Any]]:
    """How ranks failed: the root cause first, what followed from it last."""
    return [
        {
            "rank": error.rank,
            "time": error.time,
            "kind": error.kind,
            "type": error.type,
            "message": error.message[:_MAX_TEXT],
            "text": error.text[:_MAX_TEXT],
            "frames": [_frame(frame) for frame in error.frames[-_MAX_FRAMES:] if isinstance(frame, Mapping)],
            "exit_code": error.exit_code,
            "signal_name": None if error.signal is None else signal_name(error.signal),
            "peak_memory_bytes": error.peak_memory_bytes,
            "collateral": error.collateral,
            "host": error.host,
        }
        for error in failures.failures(find(id), attempt)
    ]


def _frame(frame: Mapping[str, Any]) -> dict[str, Any]:
    line = frame.get("line")
    return {
        "file": str(frame.get("file") or ""),
        "label": str(frame.get("label") or frame.get("file") or ""),
        "line": line if isinstance(line, int) else None,
        "function": str(frame.get("function") or ""),
        "source": str(frame.get("source") or ""),
    }


def results(id: str) -> list[dict[str, Any]]:
    """What the ranks' results look like, equal ones together: `{ranks, repr, error, bytes}`."""
    place = find(id)
    status = reader.status(place)
    heard = said(place, status.attempt, rank_count(reader.job(place), status)).refresh()
    folded: dict[tuple[Any, ...], list[int]] = {}
    for rank, result in sorted(heard.results.items()):
        folded.setdefault(tuple(result.items()), []).append(rank)
    return [{"ranks": ranks, **dict(items)} for items, ranks in folded.items()]


def stacks(id: str, timeout_s: float = 5.0) -> dict[str, Any]:
    """Where every running rank is in its code: `{groups: [{ranks, frames}], silent, hint}`.

    Raises DistError when the run has ended.
    """
    taken = _stacks.take(find(id), min(timeout_s, 5.0))
    return {
        "groups": [
            {
                "ranks": list(ranks),
                "frames": [
                    {
                        "file": frame.file,
                        "label": frame.label or frame.file,
                        "line": frame.line,
                        "function": frame.function,
                        "source": frame.source,
                    }
                    for frame in frames
                ],
            }
            for ranks, frames in taken.groups
        ],
        "silent": list(taken.missing),
        "hint": taken.hint,
    }


def stop(id: str, kill: bool = False) -> dict[str, Any]:
    """Ask for the end of a run; returns at once, and does nothing to one that has ended."""
    place = find(id)
    submission.resume(place)  # ranks that have outlived their supervisor are ended by another one
    state = reader.status(place).state
    if not state.ended:
        try:
            place.request("kill" if kill else "stop")
        except OSError as error:
            raise DistError(f"run {id} cannot be asked to stop: {error}") from error
    return {"id": id, "state": state.value}


def remove(id: str) -> dict[str, Any]:
    """Delete an ended run. Raises InputError when it goes on."""
    return {"id": id, "freed_bytes": manage.remove([find(id)])}


def disk_size(id: str) -> dict[str, Any]:
    """What a run takes on the disk."""
    return {"id": id, "bytes": manage.disk_bytes(find(id).path)}


def clean(days: float) -> dict[str, Any]:
    """Delete the runs that ended more than that many days ago."""
    if not math.isfinite(days) or days < 1:
        raise InputError(f"days must be at least 1, got {days}")
    removed, freed = [], 0
    for place in manage.ended_before(time.time() - days * 86_400):
        if reader.status(place).state is State.LOST and not place.state.exists():
            continue  # not known to have ended
        try:
            freed += manage.remove([place])
        except DistError:
            continue  # the next time
        removed.append(place.id)
    return {"removed": removed, "freed_bytes": freed}
