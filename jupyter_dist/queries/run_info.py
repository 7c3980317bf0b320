"""A run as JSON for the views, and the list of runs. An ended run is read from the disk once."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError, RunNotFound
from ..folder import RunFolder, age_key, runs, runs_root
from ..job import Job, RankState, State, Status, rank_count
from ..record import provenance, reader, run_labels
from ..record.file_changes import FileVersion, file_version
from ..text.format import signal_name
from . import files, run_filter, tuning
from .answers.ranks import RankProgress
from .answers.runs import Environment, RankInfo, RunInfo, RunList, RunSummary
from .metrics.last_values import FinalMetrics, final_metrics
from .rank_reports import said
from .sessions import sessions

__all__ = ["environment", "full", "in_order", "listing", "short"]


_MAX_LIMIT = 1000
_MOST_SOURCE = 20_000
_ended: dict[Path, tuple[tuple[FileVersion, FileVersion], RunSummary, str]] = {}
"""Run folder → (when its state and name were written, its row in the list, the text to search)."""
_ended_lock = threading.Lock()


def full(folder: RunFolder) -> RunInfo:
    """Return all facts of a run except its logs, metrics and results. Raises RunNotFound."""
    status, job = reader.status(folder), reader.job(folder)
    size = rank_count(job, status)
    heard = said(folder, status.attempt, size).refresh()
    bars = heard.progress()
    more: dict[str, Any] = {}
    if job.tuning is not None:
        more["tuning"] = tuning.tuning_of(folder, job.tuning)
    if job.trial is not None:
        more["trial"] = tuning.trial_of(job.trial)
    waited_for = (RankState(rank) for rank in range(len(status.ranks), size))
    return {
        **_summary(folder, status, job, heard.slowest(), final_metrics(folder, status)),
        "ranks": [_rank(rank) for rank in (*status.ranks, *waited_for)],
        "progress_by_rank": bars,
        "notes": [
            *job.notes,
            *filter(None, [status.told, heard.steps.verdict(size).sentence]),
            *heard.notes,
            *heard.hints(),
        ],
        "source": job.source,
        "attempts": folder.attempts(),
        "launchers": files.launchers(folder, status.attempt),
        "line": job.line,
        "files": [{"name": name, "bytes": size} for name, size in files.downloadable(folder)],
        **more,  # type: ignore[typeddict-item]
    }


def _summary(
    folder: RunFolder, status: Status, job: Job, progress: RankProgress | None, metrics: FinalMetrics
) -> RunSummary:
    said_of_it = run_labels.read(folder)
    waiting: dict[str, Any] = {"waiting": [wait.rank for wait in status.waits]} if status.waits else {}
    return {
        "id": folder.id,
        "name": said_of_it.name
        or job.label
        or (os.path.basename(job.notebook) if job.notebook else folder.id),
        "backend": job.where,
        "world_size": rank_count(job, status),
        "state": status.state.value,
        "attempt": status.attempt,
        "created": job.created,
        "started": status.started,
        "ended": status.ended,
        "reason": status.reason,
        "notebook": job.notebook,
        "label": job.label,
        "cluster": job.cluster,
        "warm": status.warm,
        "stall": {"since": status.stall.since, "noticed": status.stall.noticed} if status.stall else None,
        "progress": progress,
        "host_time": time.time(),
        # An attempt that only took another port does not count among the restarts that the user asked for.
        "max_restarts": job.max_restarts + status.port_retries,
        "path": str(folder.path),
        "named": bool(said_of_it.name),
        "tags": list(said_of_it.tags),
        "note": said_of_it.note,
        "parameters": job.params,
        "final": metrics.means,
        "extremes": metrics.extremes,
        **waiting,  # type: ignore[typeddict-item]
    }


def environment(folder: RunFolder) -> Environment:
    """Return the environment with which a run was started."""
    return provenance.read(folder)  # type: ignore[return-value]  # jupyter-dist wrote the file


def _rank(rank: RankState) -> RankInfo:
    return {
        "rank": rank.rank,
        "state": rank.state.value,
        "pid": rank.pid,
        "host": rank.host,
        "local_rank": rank.local_rank,
        "exit_code": rank.exit_code,
        "signal_name": None if rank.signal is None else signal_name(rank.signal),
        "started": rank.started,
        "ended": rank.ended,
        "peak_memory_bytes": rank.peak_memory_bytes,
    }


def short(folder: RunFolder) -> RunSummary | None:
    """Return a run's row in the list. None if the run was removed during this call."""
    found = _short(folder)
    return None if found is None else found[0]


def _short(folder: RunFolder) -> tuple[RunSummary, str] | None:
    written = file_version(folder.state), file_version(folder.about)  # of the state, and of the name and note
    with _ended_lock:
        known = _ended.get(folder.path)
    if known is not None and known[0] == written:
        return {**known[1], "host_time": time.time()}, known[2]
    status = reader.status(folder)
    try:
        job = reader.job(folder)
        progress: RankProgress | None = None
        if not status.state.ended:
            heard = said(folder, status.attempt, rank_count(job, status))
            progress = heard.refresh(progress_only=True).slowest()
        metrics = final_metrics(folder, status)
        info = _summary(folder, status, job, progress, metrics)
    except RunNotFound as error:
        damaged = _damaged(folder, status, str(error))
        return None if damaged is None else (damaged, _searched(damaged, ""))
    text = _searched(info, job.source)
    # The heartbeat of another host may arrive late. Then a lost run is found again.
    final = status.state.ended and (status.state is not State.LOST or time.time() - status.heartbeat > 60)
    if final and metrics.complete and written[0]:
        with _ended_lock:
            _ended[folder.path] = (written, info, text)
    return info, text


def _damaged(folder: RunFolder, status: Status, reason: str) -> RunSummary | None:
    try:
        created = folder.path.stat().st_mtime
    except OSError:
        return None
    job = Job(folder.id, "?", 0, created, "", "", "")
    shown = Status(folder.id, State.LOST, attempt=status.attempt, reason=reason)
    return _summary(folder, shown, job, None, FinalMetrics({}, {}, True))


def listing(
    text: str = "",
    state: str | None = None,
    notebook: str | None = None,
    limit: int = 100,
    before: str | None = None,
    sort: str = "",
) -> RunList:
    """Return the runs that match, newest first. See `queries.runs`."""
    if not 0 <= limit <= _MAX_LIMIT:
        raise InputError(f"limit must be 0 to {_MAX_LIMIT}, got {limit}")
    states = None if not state else {part.strip() for part in state.split(",")}
    if states is not None and not states <= {known.value for known in State}:
        raise InputError(f"state must be of {', '.join(known.value for known in State)}; got {state!r}")
    root = runs_root()
    folders = list(runs(root))
    _forget({folder.path for folder in folders})
    words = text.lower().split()
    fitting: list[RunSummary] = []
    notebooks: set[str] = set()
    for folder in folders:
        known = _short(folder)
        if known is None:
            continue
        info, shown = known
        if info["notebook"]:
            notebooks.add(info["notebook"])
        if _fits(info, shown, words, states, notebook):
            fitting.append(info)
    if sort:
        fitting = in_order(fitting, sort)
        ids = [info["id"] for info in fitting]
        found = fitting[ids.index(before) + 1 :] if before in ids else fitting
    elif before is None:
        found = fitting
    else:
        end = age_key(before, root)
        found = [info for info in fitting if age_key(info["id"], root) < end]
    return {
        "runs": found[:limit],
        "total": len(fitting),
        "notebooks": sorted(notebooks),
        "root": str(root),
        "host": socket.gethostname(),
        "hint": None if folders else _hint(root),
        "sessions": sessions(),
    }


def _fits(
    info: RunSummary, shown: str, words: list[str], states: set[str] | None, notebook: str | None
) -> bool:
    if states is not None and info["state"] not in states:
        return False
    if notebook is not None and info["notebook"] != notebook:
        return False
    return all(run_filter.fits(info, shown, word) for word in words)


def _searched(info: RunSummary, source: str) -> str:
    """Return all text of a run that a search looks in, in lower case."""
    told: dict[str, Any] = {**info}
    keys = ("id", "name", "backend", "state", "notebook", "label", "reason", "note")
    parameters = (f"{name}={value}" for name, value in info.get("parameters", {}).items())
    parts = (
        *(str(told[key] or "") for key in keys),
        *info.get("tags", ()),
        *parameters,
        source[:_MOST_SOURCE],
    )
    return "\n".join(parts).lower()


def _forget(there: set[Path]) -> None:
    with _ended_lock:
        for path in _ended.keys() - there:
            del _ended[path]


def _hint(root: Path) -> str:
    if root.is_dir() or not root.exists():
        return (
            f"This server looks for runs in {root} on {socket.gethostname()}. Kernels on another host, or "
            "with another JUPYTER_DIST_RUNS or data directory, show theirs under the cells only."
        )
    return f"{root} is not a folder, so there can be no runs; point JUPYTER_DIST_RUNS elsewhere."


def in_order(runs: Sequence[RunSummary], sort: str) -> list[RunSummary]:
    """Sort runs by `created`, `name`, `duration`, `param:NAME` or `metric:NAME`.

    A minus puts the largest first.

    Runs without that value are last in either direction. Equal runs keep their order. Raises InputError.
    """
    down, by = sort.startswith("-"), sort.removeprefix("-")
    having: list[tuple[Any, RunSummary]] = []
    without: list[tuple[Any, RunSummary]] = []
    for run in runs:
        key = _key(run, by)
        (without if key is None else having).append((key, run))
    having.sort(key=lambda one: _comparable(one[0]), reverse=down)
    return [run for _, run in (*having, *without)]


def _key(run: RunSummary, by: str) -> Any:
    kind, _, name = by.partition(":")
    if kind == "param" and name:
        return run.get("parameters", {}).get(name)
    if kind == "metric" and name:
        return run.get("final", {}).get(name)
    if by == "duration":
        ended = run["ended"] or run["host_time"]
        return None if run["started"] is None else ended - run["started"]
    if by == "created":
        return run["created"]
    if by == "name":
        return run["name"].lower()
    raise InputError(
        f"sort must be created, name, duration, param:NAME or metric:NAME, or one with a minus, got {by!r}"
    )


def _comparable(value: Any) -> tuple[bool, float, str]:
    """Return a sort key that puts numbers before texts."""
    if isinstance(value, int | float):
        return False, float(value), ""
    return True, 0.0, str(value)
