"""Rank states from the ranks' files (worker/launchers/launched_rank.py): events and `exit.json`."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...folder import RankFolder, RunFolder
from ...job import RankState, State
from ...record.file_changes import FileVersion, file_version
from ...worker import layout, listing

__all__ = ["RankFiles", "asked", "judged", "was_told"]

_CLOCKS_S = 0.2
"""Largest difference in seconds between the clocks of two hosts, after the known corrections."""
_STARTED = b'"kind": "started"'


class RankFiles:
    """The ranks of a run, according to their files. Not for several threads.

    `world_size`: the number of ranks, started or not. `replaced`: another process may take the place of a
    rank that has ended.
    """

    def __init__(self, folder: RunFolder, world_size: int, *, replaced: bool = False) -> None:
        self._folder, self._world_size, self._replaced = folder, world_size, replaced
        self._attempt = -1
        self._ranks: list[_Rank] = []

    def newest(self, base: int) -> int:
        """Return the newest attempt from `base` on in which a rank has started, or `base`."""
        newest = base
        while True:
            ranks = self._folder.rank(newest + 1, 0).path.parent
            if not any((ranks / name / layout.EVENTS).exists() for name in listing.names(ranks)):
                return newest
            newest += 1

    def look(self, attempt: int) -> list[RankState]:
        """Return every rank of an attempt: pending, running, succeeded, or failed if its exit code is not 0.

        `judged` decides whether a rank failed by itself.
        """
        if attempt != self._attempt:
            self._attempt, self._ranks = attempt, []
        count = max(self._world_size, self._on_disk(attempt))
        for rank in range(len(self._ranks), count):
            self._ranks.append(_Rank(self._folder.rank(attempt, rank), rank))
        beside: Counter[str | None] = Counter()
        found = []
        for one in self._ranks:
            state = one.look(self._replaced)
            found.append(dataclasses.replace(state, local_rank=beside[state.host]))
            beside[state.host] += 1
        return found

    def _on_disk(self, attempt: int) -> int:
        return 1 + max(self._folder.ranks(attempt), default=-1)


class _Rank:
    """The files of one rank, read only when they change."""

    def __init__(self, folder: RankFolder, rank: int) -> None:
        self._events, self._exit = folder.events, folder.exit
        self._state = RankState(rank)
        self._seen: FileVersion = None

    def look(self, again: bool) -> RankState:
        if self._state.state.ended and not again:
            return self._state
        seen = file_version(self._exit)
        if self._state.state.ended and seen != self._seen:  # another process has taken its place
            self._state = dataclasses.replace(RankState(self._state.rank), ended=self._state.ended)
        self._seen = seen
        if self._state.state is State.PENDING:
            self._look_for_start()
        if seen is not None and not self._state.state.ended:
            self._take_exit()
        return self._state

    def _look_for_start(self) -> None:
        try:
            data = self._events.read_bytes()
        except OSError:
            return
        place = data.rfind(_STARTED)
        end = data.find(b"\n", place)
        if place < 0 or end < 0:
            return
        try:
            event = json.loads(data[data.rfind(b"\n", 0, place) + 1 : end])
            started = float(event["time"])
            pid, host = int(event["pid"]), str(event["host"])
        except (ValueError, KeyError, TypeError):
            return
        if self._state.ended is not None and started <= self._state.ended:
            return  # the event belongs to the previous process
        self._state = RankState(self._state.rank, State.RUNNING, pid, host, started=started)

    def _take_exit(self) -> None:
        exit_ = _json(self._exit)
        if exit_ is None:
            return  # the file is not complete yet
        code = exit_.get("exit_code")
        self._state = dataclasses.replace(
            self._state,
            state=State.SUCCEEDED if code == 0 else State.FAILED,
            pid=exit_.get("pid", self._state.pid),
            host=exit_.get("host", self._state.host),
            exit_code=code,
            signal=exit_.get("signal"),
            started=self._state.started or exit_.get("started"),
            ended=float(exit_.get("ended") or time.time()),
            peak_memory_bytes=exit_.get("peak_memory_bytes"),
        )


def _json(path: Path) -> Mapping[str, Any] | None:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def judged(ranks: Sequence[RankState], asked_at: float | None, *, over: bool) -> list[RankState]:
    """Distinguish the ranks that failed by themselves from those that were stopped. Pure, but for the time.

    `asked_at`: when the supervisor asked for the ranks' end, in seconds since the epoch. Even before that, a
    launcher stops all ranks after the first failure, and sometimes too fast for their reports. `over`: the
    launcher has ended, so a rank without a report will never report.
    """
    failed = [rank for rank in ranks if rank.state is State.FAILED and not _was_asked(rank, asked_at)]
    silent = [rank for rank in ranks if rank.state is State.RUNNING] if over else []
    first = min(failed, key=lambda rank: (rank.ended or 0.0, rank.rank), default=None)
    if silent and all(map(_was_asked_to_end, failed)):
        first = None  # the cause is a rank without a report: it was killed with the process that reports
    found = []
    for rank in ranks:
        state = rank.state
        if state is State.FAILED and (_was_asked(rank, asked_at) or (rank is not first and was_told(rank))):
            state = State.STOPPED
        elif state is State.RUNNING and over:
            state = State.LOST if asked_at is None and first is None else State.STOPPED
        elif state is State.PENDING and over:
            state = State.STOPPED
        ended = rank.ended
        if ended is None and state.ended and rank.started is not None:
            ended = time.time()
        found.append(dataclasses.replace(rank, state=state, ended=ended))
    return found


def _was_asked(rank: RankState, asked_at: float | None) -> bool:
    return asked((rank.ended or 0.0) + (_CLOCKS_S if was_told(rank) else 0.0), asked_at)


def asked(ended: float | None, asked_at: float | None) -> bool:
    """Return whether the end followed the request to end."""
    return asked_at is not None and (ended or 0.0) >= asked_at


def _was_asked_to_end(rank: RankState) -> bool:
    return rank.signal == signal.SIGTERM or rank.exit_code == 128 + signal.SIGTERM


def was_told(rank: RankState) -> bool:
    """Return whether the rank ended in the way in which a launcher stops ranks."""
    return rank.signal == signal.SIGKILL or _was_asked_to_end(rank)
