"""Pages, searches and downloads of a run's logs, read from the disk.

`rank` None means the view of all ranks (merged_log.py): by time, equal lines folded. `launcher` names a
launcher's log (queries/files.py) instead of a rank's. Its lines have no rank.
Line numbers are stable, because a log grows only at its end.
A last line without a newline counts as a line after its rank has ended. In the view of all ranks, it counts
after the attempt has ended. Before that, it is in a page's `partial`.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...errors import DistError, InputError
from ...folder import RunFolder
from ...job import Status
from ...record import reader
from ...text.cancellation import Cancellation
from ...text.fold import ranges
from ...text.search import literal_search as _literal
from ...text.search import pattern_process
from ...text.search import pattern_search as _search
from .. import files
from ..answers.logs import LogLine, LogPage, PartialLine, SearchResult
from ..answers.media import Place
from .line_index import MAX_CHARS, LineIndex, RawLine, cut_text
from .merged_log import AllIndex
from .segments import Columns
from .time_index import times_of

__all__ = ["AttemptLogs", "OneLog", "download", "lines", "opened", "page", "page_of", "search"]

_MAX_COUNT = 1000
_MAX_HITS = 10_000
_MAX_QUERY = 2000
_PAGE_CHARS = 2_000_000
_CROWDED_CHARS = 500
"""Characters shown of a line, if the lines before it on the page have two million characters."""
_KEPT = 32
_CHUNK = 1 << 20
_NEAR = 256
"""Lines that are so close to each other are read together: the index has every 256th line."""
T = TypeVar("T")
_Row = tuple[tuple[int, ...], float, RawLine]
"""Ranks of a line, its time, and the line."""
_known: OrderedDict[tuple[Path, int], AttemptLogs] = OrderedDict()
_known_lock = threading.Lock()


class AttemptLogs:
    """Logs of one attempt. Their line indexes are kept between requests."""

    def __init__(self, folder: RunFolder, attempt: int, world_size: int) -> None:
        self.attempt, self.world_size = attempt, world_size
        self.folders = [folder.rank(attempt, rank) for rank in range(world_size)]
        self.ranks = [LineIndex(rank.output) for rank in self.folders]
        self.all = AllIndex(self.folders, self.ranks, folder.moment)
        self._folder = folder
        self._launchers: dict[str, LineIndex] = {}
        self.places: dict[tuple[int, int, int], Place] = {}
        """By `display_positions.key_of`: positions of displays, only those that can no longer change."""

    def launcher(self, name: str) -> LineIndex:
        """Return the log of one launcher. Raises InputError if there is no launcher of that name."""
        if name not in self._launchers:
            self._launchers[name] = LineIndex(files.launcher_log(self._folder, self.attempt, name))
        return self._launchers[name]

    @staticmethod
    def of(folder: RunFolder, attempt: int, world_size: int) -> AttemptLogs:
        """Return this process's object for the attempt, or a new one."""
        key = (folder.path, attempt)
        world_size = max(1, world_size)  # a tuning run has no rank, and an empty log
        with _known_lock:
            found = _known.pop(key, None)
            if found is None or found.world_size != world_size:
                found = AttemptLogs(folder, attempt, world_size)
            _known[key] = found
            while len(_known) > _KEPT:
                _known.popitem(last=False)
        return found

    def ended(self, status: Status, rank: int | None) -> float | None:
        """Return when a rank (None: every rank) wrote last. None if it may still write."""
        if self.attempt < status.attempt or status.state.ended:
            return status.ended or time.time()
        if rank is not None and rank < len(status.ranks) and status.ranks[rank].state.ended:
            return status.ranks[rank].ended or time.time()
        return None

    def total(self, status: Status, rank: int | None, launcher: str | None = None) -> int:
        """Return the number of lines. The status must have been read before this call."""
        if launcher is None and rank is None and self.world_size > 1:
            return self.all.refresh(ended=self.ended(status, None)).total
        log = self.one(status, rank, launcher)
        return log.index.refresh(ended=log.ended is not None)

    def one(self, status: Status, rank: int | None, launcher: str | None) -> OneLog:
        """Return the log of a launcher, or else of a rank. Rank None means the only rank."""
        if launcher is not None:
            index = self.launcher(launcher)
            return OneLog(None, index, index.path.with_suffix(".idx"), self.ended(status, None))
        rank = rank or 0
        return OneLog(rank, self.ranks[rank], self.folders[rank].times, self.ended(status, rank))


@dataclass(frozen=True)
class OneLog:
    """One log file: its lines and the index of their times. A launcher's log has no such index."""

    rank: int | None
    index: LineIndex
    times: Path
    ended: float | None


def opened(
    folder: RunFolder, attempt: int | None, rank: int | None = None, launcher: str | None = None
) -> tuple[AttemptLogs, Status]:
    """Return the logs of an attempt (None: the last one), and the run's status.

    Raises InputError if there is no such attempt or rank.
    """
    if rank is not None and launcher is not None:
        raise InputError(f"either a rank or a launcher can be asked for, got {rank} and {launcher[:80]!r}")
    status = reader.status(folder)  # read before the logs: if it is final, they are complete
    if attempt is None:
        attempt = status.attempt
    elif attempt not in folder.attempts():
        raise InputError(f"run {folder.id} has no attempt {attempt}; it has {folder.attempts()}")
    size = reader.rank_count_of(folder, status, attempt)
    if rank is not None and not 0 <= rank < size:
        known = "rank 0" if size == 1 else f"ranks 0 to {size - 1}"
        raise InputError(f"run {folder.id} has {known}, not {rank}")
    return AttemptLogs.of(folder, attempt, size), status


def page(
    folder: RunFolder,
    rank: int | None = None,
    attempt: int | None = None,
    start: int = 0,
    count: int = 200,
    launcher: str | None = None,
) -> LogPage:
    """Return at most 1,000 lines from number `start` on. A negative `start` counts from the end.

    `settled`: rows before this one are final. Later rows may still gain `ranks`. Their text changes only if
    it stands for a picture that turns out to differ between ranks.
    """
    logs, status = opened(folder, attempt, rank, launcher)
    if not 1 <= count <= _MAX_COUNT:
        raise InputError(f"count must be 1 to {_MAX_COUNT}, got {count}")
    return page_of(logs, status, rank, start, count, launcher)


def page_of(
    logs: AttemptLogs, status: Status, rank: int | None, start: int, count: int, launcher: str | None = None
) -> LogPage:
    """Return the same for logs already opened. The status must have been read before this call."""
    if rank is not None and not 0 <= rank < logs.world_size:
        raise InputError(f"there is no rank {rank}")
    total = logs.total(status, rank, launcher)
    start = max(0, total + start) if start < 0 else min(start, total)
    complete = logs.ended(status, rank) is not None
    folded = rank is None and launcher is None
    rows: list[_Row]
    if folded and logs.world_size > 1:
        columns = logs.all.refresh(ended=logs.ended(status, None))
        rows = [*_of_all(logs, columns, start, count)]
        settled = total if complete else min(columns.stable, total)
    else:
        log = logs.one(status, rank, launcher)
        rows = _timed(log, _raw(log, start, count))
        settled = total
    return {
        "attempt": logs.attempt,
        "start": start,
        "total": total,
        "settled": settled,
        "complete": complete,
        "lines": list(_shown(rows, itertools.count(start), folded=folded)),
        "partial": [] if complete or start + count < total else _partial(logs, status, rank, launcher),
    }


def lines(
    folder: RunFolder,
    numbers: Iterable[int],
    rank: int | None = None,
    attempt: int | None = None,
    launcher: str | None = None,
) -> list[LogLine]:
    """Return the lines with these numbers, at most 1,000. Numbers behind the last line are left out."""
    wanted = sorted(set(numbers))
    if len(wanted) > _MAX_COUNT or (wanted and wanted[0] < 0):
        raise InputError(f"numbers must be at most {_MAX_COUNT} numbers of lines, from 0")
    logs, status = opened(folder, attempt, rank, launcher)
    folded = rank is None and launcher is None
    # The log is refreshed once, however many lines are far from each other.
    if folded and logs.world_size > 1:
        columns = logs.all.refresh(ended=logs.ended(status, None))
        rows = _picked(wanted, partial(_of_all, logs, columns))
    else:
        log = logs.one(status, rank, launcher)
        log.index.refresh(ended=log.ended is not None)
        read = _picked(wanted, partial(_raw, log))
        rows = dict(zip(read, _timed(log, read.values()), strict=True))
    return list(_shown(rows.values(), rows, folded=folded))


def _picked(numbers: list[int], read: Callable[[int, int], Iterable[T]]) -> dict[int, T]:
    """Return what `read(start, count)` yields for ascending numbers. Only the wanted lines are in memory."""
    wanted = set(numbers)
    return {
        number: line
        for start, stop in _spans(numbers)
        for number, line in zip(range(start, stop), read(start, stop - start), strict=False)
        if number in wanted
    }


def _spans(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield ascending numbers as spans [start, stop), with those in between that are few."""
    for place, number in enumerate(numbers):
        if place == 0 or number - numbers[place - 1] > _NEAR:
            start = number
        if place + 1 == len(numbers) or numbers[place + 1] - number > _NEAR:
            yield start, number + 1


def _of_all(logs: AttemptLogs, columns: Columns, start: int, count: int) -> Iterator[_Row]:
    for row in logs.all.rows(columns, start, count):
        yield row.ranks, row.time, RawLine(row.data, 0, row.whole)


def _raw(log: OneLog, start: int, count: int) -> Iterator[RawLine]:
    """Yield lines. After the end of the rank, a last line without a newline is one of them."""
    number = start
    for line in log.index.read(start, count):
        number += 1
        yield line
    if log.ended is not None and number < start + count and number == log.index.count:
        yield from log.index.rest()


def _timed(log: OneLog, lines: Iterable[RawLine]) -> list[_Row]:
    found = list(lines)
    ranks = () if log.rank is None else (log.rank,)
    times = times_of(log.times, [line.end for line in found], log.ended or time.time())
    return [(ranks, when, line) for when, line in zip(times, found, strict=True)]


def _shown(rows: Iterable[_Row], numbers: Iterable[int], *, folded: bool) -> Iterator[LogLine]:
    room = _PAGE_CHARS
    for number, (ranks, when, raw) in zip(numbers, rows, strict=False):
        text, cut = cut_text(raw, MAX_CHARS if room > 0 else _CROWDED_CHARS)
        room -= len(text)
        line: LogLine = {
            "n": number,
            "rank": ranks[0] if ranks else None,
            "time": when,
            "text": text,
        }
        if folded:
            line["ranks"] = list(ranks)
        if cut:
            line["cut"] = True
        yield line


def _partial(logs: AttemptLogs, status: Status, rank: int | None, launcher: str | None) -> list[PartialLine]:
    """Return the unfinished last lines of ranks, for example progress bars."""
    found: list[PartialLine] = []
    every = rank is None and launcher is None
    for number in range(logs.world_size) if every else [rank]:
        log = logs.one(status, number, launcher)
        log.index.refresh()
        for raw in log.index.rest():
            text, cut = cut_text(raw)
            (when,) = times_of(log.times, [raw.end], time.time())
            found.append({"rank": number, "time": when, "text": text, "cut": cut})
    return found


def search(
    folder: RunFolder,
    rank: int | None = None,
    attempt: int | None = None,
    query: str = "",
    regex: bool = False,
    case: bool = False,
    limit: int = 1000,
    launcher: str | None = None,
    cancellation: Cancellation | None = None,
) -> SearchResult:
    """Search a whole log. Returns how many lines match, and the numbers of the last ones.

    Raises InputError if the regular expression is invalid, or takes longer than 10 s. Raises DistError if it
    is cancelled.
    """
    if not 0 < len(query) <= _MAX_QUERY:
        raise InputError(f"a search needs 1 to {_MAX_QUERY} characters, got {len(query)}")
    if not 1 <= limit <= _MAX_HITS:
        raise InputError(f"limit must be 1 to {_MAX_HITS}, got {limit}")
    try:
        _search.compiled(query, regex=regex, case=case)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"not a regular expression: {error}") from None
    literal = None if regex else _literal.Literal(query, case=case)
    logs, status = opened(folder, attempt, rank, launcher)
    pieces: Iterator[bytes | int]
    if rank is None and launcher is None and logs.world_size > 1:
        columns = logs.all.refresh(ended=logs.ended(status, None))
        pieces, unfinished = logs.all.text(columns, None if literal is None else literal.may_match), True
    else:
        log = logs.one(status, rank, launcher)
        log.index.refresh(ended=log.ended is not None)
        pieces, unfinished = log.index.log.chunks(), log.ended is not None
    if cancellation is not None:
        pieces = _until_cancelled(pieces, cancellation)
    if literal is not None:
        here: SearchResult = _literal.search(pieces, literal, limit=limit, unfinished=unfinished)
        return here
    try:
        chunks = (piece for piece in pieces if isinstance(piece, bytes))
        found: SearchResult = pattern_process.in_child(
            chunks, cancellation, query=query, case=case, limit=limit, unfinished=unfinished
        )
    except TimeoutError as error:
        raise InputError(f"this expression {error}") from None
    except OSError as error:
        raise DistError(f"the search failed: {error}; try again") from None
    return found


def _until_cancelled(pieces: Iterator[bytes | int], cancellation: Cancellation) -> Iterator[bytes | int]:
    cancellation.check()
    for piece in pieces:
        yield piece
        cancellation.check()


def _file(path: Path) -> Iterator[bytes]:
    """Yield a log as it is now, in pieces."""
    try:
        with open(path, "rb") as file:
            left = file.seek(0, 2)
            file.seek(0)
            while left and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk
    except OSError:
        return


def download(
    folder: RunFolder, rank: int | None = None, attempt: int | None = None, launcher: str | None = None
) -> Iterator[bytes]:
    """Yield a rank's or launcher's log byte for byte, or all lines by time, each after `[ranks] `."""
    logs, status = opened(folder, attempt, rank, launcher)
    if rank is not None or launcher is not None:
        return _file(logs.one(status, rank, launcher).index.path)
    return _download_all(logs, status)


def _download_all(logs: AttemptLogs, status: Status) -> Iterator[bytes]:
    if logs.world_size == 1:
        yield from _file(logs.folders[0].output)
        return
    columns = logs.all.refresh(ended=logs.ended(status, None))
    piece: list[bytes] = []
    size = 0
    for row in logs.all.rows(columns, 0, columns.total):
        piece.append(b"[%s] %s\n" % (ranges(row.ranks).encode(), row.data))
        size += len(row.data)
        if size >= _CHUNK:
            yield b"".join(piece)
            piece, size = [], 0
    yield b"".join(piece)
