"""Detection of changes in runs, from the sizes and times of their files."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import DistError, RunNotFound
from ..folder import RunFolder, find_exact, runs, runs_root
from ..job import State, rank_count
from ..record import reader
from ..record.file_changes import FileVersion, file_version
from ..worker import listing
from . import files
from .answers.logs import LogChange
from .answers.metrics import UsageChange
from .answers.runs import Change, RunChanged, RunSummary
from .logs.followed_log import FollowedLog
from .logs.pages import AttemptLogs
from .rank_reports import said
from .run_info import full, short

__all__ = ["LIST", "RunChanges"]

LIST = "runs"
"""Name with which a caller watches the list of runs."""
_INFO_S = 0.3
"""Interval of messages on a run's progress. A new state is reported at once."""
_LOOK_S = 1.0
"""Interval of checks that a quiet run's supervisor still lives."""
_MAX_WATCHED = 200
_MAX_TAILS = 50
_FLOOD_S, _FLOOD_BYTES = 0.1, 32 << 10


class RunChanges:
    """Watched runs, and the list of runs if it is watched.

    `poll` returns what changed since the previous call. The first call returns everything.
    Blocks only on the disk. Use it from one thread, except `set`, which any thread may call.
    """

    def __init__(self, watched: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        self._along: dict[str, list[Mapping[str, Any]]] = {}
        self._runs: dict[str, _WatchedRun] = {}
        self._list: _WatchedList | None = None
        self.set(watched)

    def set(self, watched: Iterable[str], tails: Iterable[Mapping[str, Any]] = ()) -> None:
        """Replace what is watched. What was already watched is not reported again.

        `tails`: logs whose last lines are sent together with their changes, as `{id, rank, launcher}`.
        """
        along: dict[str, list[Mapping[str, Any]]] = {}
        for tail in itertools.islice(tails, _MAX_TAILS):
            along.setdefault(str(tail.get("id")), []).append(tail)
        with self._lock:
            # A page with very many live runs still hears of the list, from which it learns the rest.
            names = sorted({str(name) for name in watched}, key=lambda name: (name != LIST, name))
            self._wanted = frozenset(names[:_MAX_WATCHED])
            self._along = along

    @property
    def idle(self) -> bool:
        """Return whether nothing is watched."""
        return not self._wanted

    def folders(self) -> list[Path]:
        """Return the folders of the watched runs that were found.

        When a run changes, a file in its folder changes.
        """
        return [run.place for run in self._runs.values() if run.place is not None]

    def poll(self, *, tails: bool = True) -> list[Change]:
        """Return what changed, as JSON messages.

        - `{kind: "run", run}`
        - `{kind: "log", id, attempt, ranks, launchers, all, complete}`, with numbers of lines
        - `{kind: "displays", id, version}`
        - `{kind: "runs"}`
        - the kinds `curves`, `usage` and `gone`, with only the run's id

        Without `tails` no log lines are sent. The view then asks for them.
        """
        with self._lock:
            wanted, along = self._wanted, self._along
        for name in self._runs.keys() - wanted:
            del self._runs[name]
        for name in sorted(wanted - self._runs.keys() - {LIST}):
            self._runs[name] = _WatchedRun(name)
        if LIST not in wanted:
            self._list = None
        elif self._list is None:
            self._list = _WatchedList()
        messages: list[Change] = []
        for name, run in self._runs.items():
            run.read_along(along.get(name, ()))
            messages += run.poll(tails=tails)
        if self._list is not None and self._list.poll():
            messages.append({"kind": "runs"})
        return messages


class _WatchedRun:
    """One watched run. The attributes have what was reported last."""

    def __init__(self, run_id: str) -> None:
        self._id = run_id
        self._folder: RunFolder | None = None
        self._gone = False
        self._state: FileVersion = None
        self._looked_at = self._told_at = 0.0
        self._told: tuple[Any, ...] | None = None
        self._progress_due = False
        self._log: tuple[Any, ...] | None = None
        self._log_at = 0.0
        self._along: dict[tuple[object, object], FollowedLog] = {}
        self._events: list[int] = []
        self._points: list[int] = []
        self._shown = (0, 0)
        self._usage: list[int] = []
        self._usage_at = 0.0

    @property
    def place(self) -> Path | None:
        return None if self._folder is None else self._folder.path

    def read_along(self, wanted: Iterable[Mapping[str, Any]]) -> None:
        """Follow the last lines of exactly these logs. A log that was already followed keeps its state.

        The next poll reports the lines of a new one.
        """
        named = {(tail.get("rank"), tail.get("launcher")): FollowedLog.of(tail) for tail in wanted}
        along = {key: self._along.get(key, new) for key, new in named.items() if new is not None}
        if along.keys() - self._along.keys():
            self._log = None  # reported again, with the lines of the log that is new here
        self._along = along

    def poll(self, *, tails: bool) -> Iterator[Change]:
        try:
            yield from self._changes(tails)
        except DistError:
            told = self._gone
            self.__init__(self._id)  # type: ignore[misc]  # if the run returns, all of it is new
            self._gone = True
            if not told:
                yield {"kind": "gone", "id": self._id}

    def _changes(self, with_tails: bool) -> Iterator[Change]:
        now = time.monotonic()
        if self._folder is None:
            self._folder = find_exact(self._id)
        state = file_version(self._folder.state)
        if state is None and (self._state is not None or self._gone):
            raise RunNotFound(f"run {self._id} is being removed")  # so it is not pending again
        self._gone = False
        looked = self._looked_at and now - self._looked_at < _LOOK_S
        if not looked or state != self._state or self._begun():
            self._looked_at, self._state = now, state
            self._status = reader.status(self._folder)
            job = reader.job(self._folder)
            size = rank_count(job, self._status)
            self._finds_metrics = bool(job.metrics)
            self._logs = AttemptLogs.of(self._folder, self._status.attempt, size)
            self._launchers = files.launchers(self._folder, self._status.attempt)
            self._about = file_version(self._folder.about)
            self._files = [name for name, _ in files.downloadable(self._folder)]
        ranks = self._logs.folders
        events = [self._status.attempt, *(listing.size(rank.events) for rank in ranks)]
        # A row of the view of all ranks exists only after the supervisor has written its time.
        log = (
            self._status.attempt,
            self._status.state.ended,
            [(listing.size(rank.output), listing.size(rank.times)) for rank in ranks],
            [rank.state.ended for rank in self._status.ranks],
            [(name, listing.size(self._logs.launcher(name).path)) for name in self._launchers],
        )
        changes: list[Change] = [*self._run(now, events != self._events)]
        if log != self._log and not self._floods(now, log):
            self._log, self._log_at = log, now
            # A view that receives the run's end must have all line counts by then.
            changes.insert(0 if self._status.state.ended else len(changes), self._totals(with_tails))
        yield from changes
        heard = said(self._folder, self._status.attempt, len(ranks))
        if events != self._events:
            self._events = events
            heard.refresh()
        # `--metric` finds metrics in printed lines, which are in no event.
        points = [*events, *(size for size, _ in log[2] if self._finds_metrics)]
        if points != self._points:
            self._points = points
            yield {"kind": "curves", "id": self._id}
        shown = (self._status.attempt, heard.shown.settle(ended=self._status.state.ended))
        if shown != self._shown and (shown[1] or self._shown[1]):
            self._shown = shown
            yield {"kind": "displays", "id": self._id, "version": shown[1]}
        yield from self._taken(now)

    def _begun(self) -> bool:
        """Return whether a rank of a pending run writes already."""
        pending = self._status.state is State.PENDING
        return pending and any(listing.size(rank.events) for rank in self._logs.folders)

    def _floods(self, now: float, log: tuple[Any, ...]) -> bool:
        """Return whether the log grows too fast to be read. Then it is reported less often."""
        if self._log is None or now - self._log_at >= _FLOOD_S or log[:2] != self._log[:2]:
            return False
        more: int = sum(size for size, _ in log[2]) - sum(size for size, _ in self._log[2])
        return more > _FLOOD_BYTES

    def _taken(self, now: float) -> Iterator[UsageChange]:
        """Report new resource usage, at most once a second."""
        if now - self._usage_at < _LOOK_S:
            return
        self._usage_at = now
        sizes = [listing.size(rank.usage) for rank in self._logs.folders]
        if sizes != self._usage and any(sizes):
            yield {"kind": "usage", "id": self._id}
        self._usage = sizes

    def _run(self, now: float, progress: bool) -> Iterator[RunChanged]:
        status = self._status
        telling = (
            *(status.state, status.attempt, status.reason, status.ranks, status.stall, status.waits),
            *(self._launchers, self._files, self._about),
        )
        self._progress_due = self._progress_due or progress
        if telling == self._told and not (self._progress_due and now - self._told_at >= _INFO_S):
            return
        run = full(find_exact(self._id))
        if run["ended"] is not None and not status.state.ended:
            self._looked_at = 0.0  # the run has just ended: the next poll reports that, after the last lines
            return
        self._told, self._told_at, self._progress_due = telling, now, False
        yield {"kind": "run", "run": run}

    def _totals(self, with_tails: bool) -> LogChange:
        logs, status = self._logs, self._status
        found = [along.tail(logs, status) for along in self._along.values()] if with_tails else []
        tails = [tail for tail in found if tail is not None]
        told: LogChange = {
            "kind": "log",
            "id": self._id,
            "attempt": status.attempt,
            "ranks": {str(rank): logs.total(status, rank) for rank in range(logs.world_size)},
            "launchers": {name: logs.total(status, None, name) for name in self._launchers},
            "all": logs.total(status, None),
            "complete": status.state.ended,
        }
        if tails:
            told["tails"] = tails
        return told


class _WatchedList:
    """Watched list of runs: which runs exist, and the state of those that run."""

    def __init__(self) -> None:
        self._ids: list[str] | None = None
        self._root: tuple[Path, FileVersion] | None = None
        self._alive: dict[str, tuple[RunFolder, Any, Any]] = {}
        self._looked_at = 0.0

    def poll(self) -> bool:
        """Return whether anything changed since the previous call."""
        now = time.monotonic()
        look = now - self._looked_at >= _LOOK_S or not self._looked_at
        changed = False
        root = runs_root()
        there = (root, file_version(root))
        # A new folder is a run only after its job is written. The check each second sees that as well.
        if look or there != self._root:
            # A new name or note of a run also touches the folder of all runs.
            changed = there != self._root and self._root is not None
            self._root = there
            changed = self._scan(root) or changed
        for run_id, (folder, signature, before) in list(self._alive.items()):
            written = file_version(folder.state)
            if not look and written == signature:
                continue
            shown = _without_clock(short(folder))
            changed = changed or shown != before
            if shown is None or shown["ended"] is not None:
                del self._alive[run_id]
            else:
                self._alive[run_id] = (folder, written, shown)
        if look:
            self._looked_at = now
        return changed

    def _scan(self, root: Path) -> bool:
        folders = list(runs(root))
        ids = [folder.id for folder in folders]
        if ids == self._ids:
            return False
        known = set(self._ids or ())
        self._ids = ids
        for folder in folders:
            if folder.id not in known:
                shown = _without_clock(short(folder))
                if shown is not None and shown["ended"] is None:
                    self._alive[folder.id] = (folder, None, shown)
        return True


def _without_clock(info: RunSummary | None) -> dict[str, Any] | None:
    return None if info is None else {key: value for key, value in info.items() if key != "host_time"}
