"""Questions that a view asks about runs, answered from the disk as JSON.

The server's REST handlers and the widget's comm both answer with these, so a view sees the same
whichever it talks to. Run ids are whole ids; every other one raises RunNotFound and touches no file.
A question changes nothing and asks no other process: `manage.actions` is for that. All of them may block
on the disk, and none waits for anything else, except that `backends` looks what a backend finds on this
machine, which may start a program. Nothing here unpickles anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from ..folder import find_exact
from ..job import rank_count
from ..record import failures, reader
from ..record.run_list import disk_bytes
from ..text.format import signal_name
from . import answers, logs, metric_curves, run_files, run_info
from .choices import backend_list as backends
from .choices import cluster_list as clusters
from .ranks_said import said
from .watching import Watch

__all__ = [
    "Watch",
    "backends",
    "clusters",
    "curves",
    "disk_size",
    "errors",
    "file_download",
    "log_download",
    "log_page",
    "log_search",
    "results",
    "run",
    "runs",
]

_MAX_TEXT = 200_000
_MAX_FRAMES = 200


def runs(
    text: str = "",
    state: str | None = None,
    notebook: str | None = None,
    limit: int = 100,
    before: str | None = None,
) -> answers.RunList:
    """Runs, newest first: `{runs, total, notebooks, root, host, hint}`.

    `text`: words that all stand in the id, name, notebook, backend, state or reason. `state`: one or
    several with commas. `before`: the id after which (being older) to go on. `notebooks`: those of
    all runs, whatever fits. `hint` says where runs are looked for, when there are none at all.
    """
    return run_info.listing(text, state, notebook, limit, before)


def run(id: str) -> answers.RunInfo:
    """One run with its ranks, notes and cell."""
    return run_info.full(find_exact(id))


def log_page(
    id: str,
    rank: int | None = None,
    attempt: int | None = None,
    start: int = 0,
    count: int = 200,
    launcher: str | None = None,
) -> answers.LogPage:
    """Lines of one rank's log, of a launcher's, or of all ranks by time; see `logs.page`."""
    return logs.page(find_exact(id), rank, attempt, start, count, launcher)


def log_search(
    id: str,
    rank: int | None = None,
    attempt: int | None = None,
    query: str = "",
    regex: bool = False,
    case: bool = False,
    limit: int = 1000,
    launcher: str | None = None,
) -> answers.SearchResult:
    """Search a whole log: `{count, hits: [line numbers], truncated}`."""
    return logs.search(find_exact(id), rank, attempt, query, regex, case, limit, launcher)


def log_download(
    id: str, rank: int | None = None, attempt: int | None = None, launcher: str | None = None
) -> Iterator[bytes]:
    """A whole log in pieces: a rank's or launcher's own bytes, or all ranks' lines by time."""
    return logs.download(find_exact(id), rank, attempt, launcher)


def file_download(id: str, file: str) -> Iterator[bytes]:
    """One of the run's `files`, in pieces."""
    return run_files.read(find_exact(id), file)


@overload
def curves(
    id: str,
    attempt: int | None = None,
    points: int = 2000,
    names: Sequence[str] | None = None,
    version: None = None,
) -> answers.Curves: ...


@overload
def curves(
    id: str,
    attempt: int | None = None,
    points: int = 2000,
    names: Sequence[str] | None = None,
    *,
    version: str,
) -> answers.Curves | answers.CurvesUnchanged: ...


def curves(
    id: str,
    attempt: int | None = None,
    points: int = 2000,
    names: Sequence[str] | None = None,
    version: str | None = None,
) -> answers.Curves | answers.CurvesUnchanged:
    """The run's metrics to draw; see `metric_curves.curves`."""
    return metric_curves.curves(find_exact(id), attempt, points, names, version)


def errors(id: str, attempt: int | None = None) -> list[answers.RankError]:
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
        for error in failures.failures(find_exact(id), attempt)
    ]


def _frame(frame: Mapping[str, Any]) -> answers.Frame:
    line = frame.get("line")
    return {
        "file": str(frame.get("file") or ""),
        "label": str(frame.get("label") or frame.get("file") or ""),
        "line": line if isinstance(line, int) else None,
        "function": str(frame.get("function") or ""),
        "source": str(frame.get("source") or ""),
    }


def results(id: str) -> list[answers.Result]:
    """What the ranks' results look like, equal ones together: `{ranks, repr, error, bytes}`."""
    place = find_exact(id)
    status = reader.status(place)
    heard = said(place, status.attempt, rank_count(reader.job(place), status)).refresh()
    folded: dict[tuple[str, str | None, float | None], list[int]] = {}
    for rank, found in sorted(heard.results.items()):
        folded.setdefault((found["repr"], found["error"], found["bytes"]), []).append(rank)
    return [
        {"ranks": ranks, "repr": text, "error": error, "bytes": size}
        for (text, error, size), ranks in folded.items()
    ]


def disk_size(id: str) -> answers.DiskSize:
    """What a run takes on the disk."""
    return {"id": id, "bytes": disk_bytes(find_exact(id).path)}
