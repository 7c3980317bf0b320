"""Sparse time index beside each rank's log. Views use the index to interleave ranks."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ..folder import RunFolder
from ..record.file_changes import FileChanges
from ..worker import layout, listing
from ..worker.output import time_index
from ..worker.output.events import COLLECTIVES
from .digest_update import DigestUpdater
from .turns import Turns, turn_size

__all__ = ["LogIndexWriter"]

_QUICK_S = 0.02
_HEARD_S = 0.01
"""Shortest pause if the system reports file changes. One tick records all changes of the pause."""
_FLOOD_BYTES = 32 << 10
_REST = 30.0
_ANSWER = f'"kind": "{COLLECTIVES}"'.encode()
_MOST_ANSWERED = 64 << 10
_OF_A_RANK = (layout.OUTPUT, layout.EVENTS, layout.TIMES)


class _Files(NamedTuple):
    """The paths of one rank's files. Thousands of ranks have them, and pathlib is slow."""

    output: str
    events: str
    times: str


class LogIndexWriter:
    """Writer of (offset, time) records in `times.idx`: at most one record per rank and tick.

    If a log is from another host, that host's agent sends its times too. Such an index has its first record
    at offset 0 (agent/line_times.py), and this class does not change it. If a log has grown, the tick also
    writes the time up to which all indexes are complete to `RunFolder.moment`. Readers watch this file.

    With `digests`, the class also updates the digest of the metrics (digest_update.py).
    """

    def __init__(
        self, folder: RunFolder, attempt: int, changes: FileChanges | None = None, *, digests: bool = False
    ) -> None:
        self._folder, self._attempt = folder, attempt
        self._digester = DigestUpdater(folder, attempt) if digests else None
        self._changes = changes or FileChanges()
        self._hears = self._changes.fileno() is not None
        self._rank_of: dict[str, int] = {}
        self._unwatched: deque[str] = deque()
        """The files whose next change nobody would report."""
        self._turns, self._all_due = Turns(), False
        self._grew = 0.0
        self._files: list[_Files] = []
        self._sizes: list[int] = []
        self._event_sizes: list[int] = []
        self._of_host: list[bool | None] = []
        """Whether each rank's host wrote its index; None before its log has grown."""
        self.pause_s = _QUICK_S
        """Seconds until the next tick is worth its cost. The pause is short if a user may watch the output.

        The pause is longer with many ranks, and infinite if the ranks write very fast.
        """

    @property
    def heard(self) -> tuple[int, float] | None:
        """Return a descriptor, readable when a log has grown, and the seconds to wait before the next tick.

        Returns None if the system reports no file changes, or if the output is too fast to watch.
        """
        descriptor = self._changes.fileno()
        if descriptor is None or not self._hears or self.pause_s == math.inf:
            return None
        return descriptor, max(0.0, self._grew + self.pause_s - time.monotonic())

    def tick(self, now: float, ranks: int) -> bool:
        """Record the logs that have grown since the last tick. Returns whether a rank has printed or logged.

        An answer to a request for stacks is neither.

        `ranks`: the present number of ranks.
        """
        for rank in range(len(self._files), ranks):
            place = layout.rank_path(self._folder.path, self._attempt, rank)
            files = _Files(*(f"{place}{os.sep}{name}" for name in _OF_A_RANK))
            self._files.append(files)
            for path in (files.output, files.events):
                self._rank_of[path] = rank
                self._unwatched.append(path)
            self._sizes.append(time_index.covered(files.times))
            self._event_sizes.append(0)
            self._of_host.append(None)
        grown, active, more, moment = False, False, 0, now
        began = time.thread_time()
        for rank in self._due(self._listen()):
            files = self._files[rank]
            size = listing.size(files.output)
            if size > self._sizes[rank]:
                grown = active = True
                more += size - self._sizes[rank]
                self._sizes[rank] = size
                self._append(rank, size, now)
                if self._of_host[rank]:
                    moment = 0.0  # the host's clock differs, and some output may be missing
            events = listing.size(files.events)
            if events > self._event_sizes[rank]:
                grown = True
                more += events - self._event_sizes[rank]
                active = active or not _only_answers(files.events, self._event_sizes[rank], events)
                self._event_sizes[rank] = events
        if grown:
            self._grew = time.monotonic()
            with contextlib.suppress(OSError):
                time_index.note_complete(self._folder.moment, moment)
        quick = _HEARD_S if self._hears else _QUICK_S
        self.pause_s = math.inf if more > _FLOOD_BYTES else max(quick, _REST * (time.thread_time() - began))
        self._digest()
        return active

    def finish(self, now: float, ranks: int) -> None:
        """Make the last tick. No rank may write after this."""
        self._all_due = True
        self.tick(now, ranks)
        self._digest(last=True)

    def _digest(self, *, last: bool = False) -> None:
        if self._digester is not None and self._files:
            self._digester.tick(len(self._files), sum(self._event_sizes), last=last)

    def _listen(self) -> set[int]:
        """Watch the logs for changes. This runs before the sizes are read, so that no change is missed.

        Returns the ranks whose logs have changed since the last call, or were not watched until now.
        """
        if not self._hears:
            return set()
        changed = [path for path in self._changes.take() if path in self._rank_of]
        waiting = turn_size(len(self._unwatched))
        trying = [*changed, *(self._unwatched.popleft() for _ in range(waiting))]
        watched = set()
        for path in trying:
            if self._changes.watch(path, once=True):
                watched.add(self._rank_of[path])
            else:
                self._unwatched.append(path)
        return watched.union(self._rank_of[path] for path in changed)

    def _due(self, changed: set[int]) -> Iterable[int]:
        """Return the ranks whose files to look at: those with changes, and some others in turn.

        The system may not report a change (record/file_changes.py).
        """
        count = len(self._files)
        return range(count) if self._all_due else sorted(changed.union(self._turns.take(count)))

    def _append(self, rank: int, size: int, now: float) -> None:
        if self._of_host[rank] is None:
            self._of_host[rank] = time_index.is_of_host(self._files[rank].times)
        if not self._of_host[rank]:
            # On a full disk these lines have no times, but the run continues.
            with contextlib.suppress(OSError):
                time_index.append(self._files[rank].times, (size, now))


def _only_answers(path: str, begin: int, end: int) -> bool:
    """Return whether a part of a rank's events has only records of collectives, which are answers."""
    if end - begin > _MOST_ANSWERED:
        return False
    try:
        with open(path, "rb") as file:
            file.seek(begin)
            lines = file.read(end - begin).splitlines()
    except OSError:
        return False
    return all(_ANSWER in line for line in lines)
