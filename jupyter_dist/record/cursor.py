"""Reader of the new lines and events of a run since a cursor: `Tail`.

The state is always read before the logs. So a batch with a final state has all lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ..folder import RankFolder, RunFolder
from ..job import Status
from ..text.log_rendering import LogRendering
from ..worker.output.time_index import Times
from . import reader
from .reader import Event, Line

__all__ = ["Batch", "Tail"]

_MAX_LINE = 1 << 20
_MAX_READ = 4 << 20
_MAX_REST = 4096
_METRIC, _METRIC_WITHIN = b'"kind":"metric"', 80


@dataclass(frozen=True)
class Batch:
    """Result of one poll.

    `partial` has, by rank, the lines at the log's end that may still change. Such a line has no newline
    yet, or a progress bar rewrites it.
    `skipped` counts the bytes of the log that `tail_bytes` left out.
    `metrics` counts the bytes of metric events if the caller did not want them.
    """

    status: Status
    lines: list[Line] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    partial: Mapping[int, str] = field(default_factory=dict)
    skipped: int = 0
    metrics: int = 0


class _RankTail:
    """Reading position in one rank's files."""

    def __init__(self, folder: RankFolder, rank: int, attempt: int, output: int = 0, events: int = 0) -> None:
        self.folder, self.rank, self.attempt = folder, rank, attempt
        self.events = events
        self._times = Times(folder.times)
        self._unroll = LogRendering(output)

    @property
    def output(self) -> int:
        """Return the offset of the log up to which lines are final. A later Tail starts there."""
        return self._unroll.done

    def read_lines(self, ended: bool, tail_bytes: int | None, read_bytes: int) -> tuple[list[Line], str, int]:
        """Return the new lines, the unfinished lines, and how many bytes were left out."""
        try:
            size = os.stat(self.folder.output).st_size
            if size <= self.output:
                return [], "", 0
            with open(self.folder.output, "rb") as file:
                return self._read(file, size, ended, tail_bytes, read_bytes)
        except OSError:
            return [], "", 0

    def _read(
        self, file: BinaryIO, size: int, ended: bool, tail_bytes: int | None, read_bytes: int
    ) -> tuple[list[Line], str, int]:
        unroll, skipped = self._unroll, 0
        if tail_bytes is not None and size - unroll.read > tail_bytes:
            file.seek(size - tail_bytes)
            file.readline(_MAX_LINE)  # the rest of a line that began earlier
            skipped = file.tell() - unroll.done
            unroll = self._unroll = LogRendering(file.tell())
        file.seek(unroll.read)
        start = unroll.done
        pieces = unroll.feed(file.read(read_bytes))
        if (ended and unroll.read >= size) or unroll.read - unroll.done >= _MAX_LINE:
            pieces += unroll.flush()
        self._times.refresh()
        lines: list[Line] = []
        for end, text in pieces:
            data = os.pread(file.fileno(), end - start, start) if text is None else text
            # Rewritten lines count from the time of their last rewrite.
            lines += reader.timed_lines(
                data, start, self._times, self.rank, self.attempt, end if text else None
            )
            start = end
        self._times.forget(unroll.done)
        rest = [line[-_MAX_REST:].decode("utf-8", "replace") for line in unroll.rest()]
        return lines, "\n".join(rest), skipped

    def read_events(self, *, metrics: bool = True) -> tuple[list[Event], int]:
        """Return new events, and how many bytes of metrics were left out if they are not wanted."""
        try:
            if os.stat(self.folder.events).st_size <= self.events:
                return [], 0
            with open(self.folder.events, "rb") as file:
                file.seek(self.events)
                data = file.read(_MAX_READ)
        except OSError:
            return [], 0
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) >= _MAX_READ:
            whole = len(data)
        self.events += whole
        data = data[:whole]
        kept = data if metrics else _without_metrics(data)
        return list(reader.parse_events(kept, self.rank, self.attempt)), len(data) - len(kept)

    def at_end(self) -> bool:
        for path, offset in ((self.folder.output, self.output), (self.folder.events, self.events)):
            try:
                if os.stat(path).st_size > offset:
                    return False
            except OSError:
                continue
        return True


class Tail:
    """Follower of a run, which starts at a cursor. Use it from one thread only.

    `tail_bytes` limits what one poll reads of each rank's log. Older bytes are left out and counted.
    So a fast log costs no more than a slow one.
    Without `metrics`, metric events are left out, and their bytes are counted.
    `read_bytes`: how much of each rank's log one poll reads, at least the longest line (1 MB).
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        cursor: Mapping[str, Any] | None = None,
        tail_bytes: int | None = None,
        metrics: bool = True,
        read_bytes: int = _MAX_READ,
    ) -> None:
        self._folder = folder
        self._read_bytes = max(_MAX_LINE, read_bytes)
        self._tail_bytes, self._metrics = tail_bytes, metrics
        self._attempt = 0
        self._tails: dict[tuple[int, int], _RankTail] = {}
        if cursor is not None:
            self._attempt = int(cursor["attempt"])
            for key, (out, events) in cursor["ranks"].items():
                attempt, rank = (int(part) for part in key.split("/"))
                self._tails[attempt, rank] = _RankTail(
                    folder.rank(attempt, rank), rank, attempt, int(out), int(events)
                )

    @property
    def cursor(self) -> dict[str, Any]:
        """Return JSON with which another Tail continues at this position."""
        ranks = {f"{a}/{r}": [tail.output, tail.events] for (a, r), tail in self._tails.items()}
        return {"attempt": self._attempt, "ranks": ranks}

    def poll(self) -> Batch:
        """Read what is new. Does not wait.

        One poll reads at most `read_bytes` of each rank's log and 4 MB of its events. A batch with a final
        status is complete up to that limit.
        `drain` reads the rest.
        """
        state = reader.status(self._folder)
        lines: list[Line] = []
        events: list[Event] = []
        partial: dict[int, str] = {}
        skipped = metrics = 0
        for attempt in range(self._attempt, state.attempt + 1):
            for rank in self._ranks(attempt, state):
                tail = self._tails.get((attempt, rank))
                if tail is None:
                    tail = _RankTail(self._folder.rank(attempt, rank), rank, attempt)
                    self._tails[attempt, rank] = tail
                ended = attempt < state.attempt or _rank_ended(state, rank)
                new, rest, left_out = tail.read_lines(ended, self._tail_bytes, self._read_bytes)
                lines += new
                told, passed_over = tail.read_events(metrics=self._metrics)
                events += told
                metrics += passed_over
                skipped += left_out
                if rest:
                    partial[rank] = rest
        self._drop_finished(state.attempt)
        lines.sort(key=lambda line: line.time)  # stable: a rank's own order is preserved
        events.sort(key=lambda event: event.time)
        return Batch(state, lines, events, partial, skipped, metrics)

    def drain(self) -> Iterator[Batch]:
        """Poll until nothing is left to read right now."""
        while True:
            batch = self.poll()
            yield batch
            if not batch.lines and not batch.events and not batch.metrics:
                return

    def _ranks(self, attempt: int, state: Status) -> Iterable[int]:
        if state.ranks:
            return range(len(state.ranks))
        return self._folder.ranks(attempt)

    def _drop_finished(self, current: int) -> None:
        while self._attempt < current:
            old = [key for key in self._tails if key[0] == self._attempt]
            if not all(self._tails[key].at_end() for key in old):
                return
            for key in old:
                del self._tails[key]
            self._attempt += 1


def _without_metrics(data: bytes) -> bytes:
    """Remove the metric lines, which are recognised by their beginning.

    In a long loop, most lines are metrics.
    """
    if _METRIC not in data:
        return data
    return b"\n".join(line for line in data.split(b"\n") if _METRIC not in line[:_METRIC_WITHIN])


def _rank_ended(state: Status, rank: int) -> bool:
    return state.state.ended or (rank < len(state.ranks) and state.ranks[rank].state.ended)
