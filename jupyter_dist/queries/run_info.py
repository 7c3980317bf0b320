"""A run as JSON for the views, and the list of them. Ended runs are read from the disk once."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from ..errors import InputError, RunNotFound
from ..folder import RunFolder, age_key, runs, runs_root
from ..job import Job, RankState, State, Status, rank_count
from ..record import reader
from ..text.format import signal_name
from . import run_files
from .answers import RankInfo, RankProgress, RunInfo, RunList, RunSummary
from .ranks_said import said, slowest

__all__ = ["full", "listing", "short"]

_MAX_LIMIT = 1000
_ended: dict[Path, tuple[int, RunSummary]] = {}
"""Run folder → (mtime of its state.json, what the list shows of it)."""
_ended_lock = threading.Lock()


def full(folder: RunFolder) -> RunInfo:
    """All there is to say about a run but its logs, metrics and results. Raises RunNotFound."""
    status, job = reader.status(folder), reader.job(folder)
    size = rank_count(job, status)
    heard = said(folder, status.attempt, size).refresh()
    bars = heard.progress()
    waited_for = (RankState(rank) for rank in range(len(status.ranks), size))
    return {
        **_summary(folder, status, job, bars),
        "ranks": [_rank(rank) for rank in (*status.ranks, *waited_for)],
        "progress_by_rank": bars,
        "notes": [*job.notes, *heard.notes],
        "source": job.source,
        "attempts": folder.attempts(),
        "launchers": run_files.launchers(folder, status.attempt),
        "files": [{"name": name, "bytes": size} for name, size in run_files.downloadable(folder)],
    }


def _summary(folder: RunFolder, status: Status, job: Job, bars: list[RankProgress]) -> RunSummary:
    return {
        "id": folder.id,
        "name": job.label or (os.path.basename(job.notebook) if job.notebook else folder.id),
        "backend": job.backend,
        "world_size": rank_count(job, status),
        "state": status.state.value,
        "attempt": status.attempt,
        "created": job.created,
        "started": status.started,
        "ended": status.ended,
        "reason": status.reason,
        "notebook": job.notebook,
        "label": job.label,
        "warm": status.warm,
        "stall": {"since": status.stall.since, "noticed": status.stall.noticed} if status.stall else None,
        "progress": slowest(bars),
        "host_time": time.time(),
        # An attempt that only took another port is none of those that the user asked for.
        "max_restarts": job.max_restarts + status.port_retries,
        "path": str(folder.path),
    }


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
    """What the list shows of a run; None when it was removed while we looked."""
    try:
        written = os.stat(folder.state).st_mtime_ns
    except OSError:
        written = 0
    with _ended_lock:
        known = _ended.get(folder.path)
    if known is not None and known[0] == written:
        return {**known[1], "host_time": time.time()}
    status = reader.status(folder)
    try:
        job = reader.job(folder)
        bars: list[RankProgress] = []
        if not status.state.ended:
            heard = said(folder, status.attempt, rank_count(job, status))
            bars = heard.refresh(progress_only=True).progress()
        info = _summary(folder, status, job, bars)
    except RunNotFound as error:
        return _damaged(folder, status, str(error))
    # One that is lost by its heartbeat, which another host writes, may be found again.
    final = status.state.ended and (status.state is not State.LOST or time.time() - status.heartbeat > 60)
    if final and written:
        with _ended_lock:
            _ended[folder.path] = (written, info)
    return info


def _damaged(folder: RunFolder, status: Status, reason: str) -> RunSummary | None:
    try:
        created = folder.path.stat().st_mtime
    except OSError:
        return None
    job = Job(folder.id, "?", 0, created, "", "", "")
    shown = Status(folder.id, State.LOST, attempt=status.attempt, reason=reason)
    return _summary(folder, shown, job, [])


def listing(
    text: str = "",
    state: str | None = None,
    notebook: str | None = None,
    limit: int = 100,
    before: str | None = None,
) -> RunList:
    """The runs that fit, newest first; see `queries.runs`."""
    if not 0 <= limit <= _MAX_LIMIT:
        raise InputError(f"limit must be 0 to {_MAX_LIMIT}, got {limit}")
    states = None if not state else {part.strip() for part in state.split(",")}
    if states is not None and not states <= {known.value for known in State}:
        raise InputError(f"state must be of {', '.join(known.value for known in State)}; got {state!r}")
    root = runs_root()
    folders = list(runs(root))
    _forget({folder.path for folder in folders})
    words = text.lower().split()
    end = None if before is None else age_key(before, root)
    found: list[RunSummary] = []
    notebooks: set[str] = set()
    total = 0
    for folder in folders:
        info = short(folder)
        if info is None:
            continue
        if info["notebook"]:
            notebooks.add(info["notebook"])
        if not _fits(info, words, states, notebook):
            continue
        total += 1
        if len(found) < limit and (end is None or age_key(folder.id, root) < end):
            found.append(info)
    return {
        "runs": found,
        "total": total,
        "notebooks": sorted(notebooks),
        "root": str(root),
        "host": socket.gethostname(),
        "hint": None if folders else _hint(root),
    }


def _fits(info: RunSummary, words: list[str], states: set[str] | None, notebook: str | None) -> bool:
    if states is not None and info["state"] not in states:
        return False
    if notebook is not None and info["notebook"] != notebook:
        return False
    if not words:
        return True
    told: dict[str, Any] = {**info}
    keys = ("id", "name", "backend", "state", "notebook", "label", "reason")
    shown = " ".join(str(told[key] or "") for key in keys).lower()
    return all(word in shown for word in words)


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
