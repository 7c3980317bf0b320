"""Results of a run by rank. Each result is unpickled at its first access."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from ...errors import DistError, ResultError, UntrustedFile
from ...folder import RunFolder, check_owner
from ...job import State, Status
from ...text.safe import one_line
from .. import reader
from ..logs.last_lines import last_bytes
from . import result_html, result_outlines, rich_output

__all__ = ["MissingResult", "Results", "alike", "result_events"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_END_BYTES = 256 << 10
"""Bytes read from the end.

A result is among a rank's last events, and its repr is cut to 10,000 characters.
"""


def result_events(folder: RunFolder, attempt: int, world_size: int) -> dict[int, Mapping[str, Any]]:
    """Return the result event of each rank: "repr", "bytes", "error", "content".

    Ranks without such an event are left out. Only the ends of the files are read, because a file may have a
    million lines of metrics.
    """
    return {
        rank: event
        for rank in range(world_size)
        for event in _last_events(folder.rank(attempt, rank).events)
        if event.get("kind") == "result"
    }


def _last_events(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the last events of a rank that belong to its result."""
    lines = last_bytes(path, _END_BYTES)[0].split(b"\n")
    # The beginning of the first line was not read.
    yield from reader.parse_lines([line for line in lines if b"result" in line])


def alike(event: Mapping[str, Any]) -> tuple[object, ...]:
    """Return a key that is equal for results shown as one.

    They look the same and, if `content` is known, are equal.
    """
    text, content = str(event.get("repr", "")), event.get("content")
    # The address of an object does not depend on its content. The hash in `content` does.
    return (_ADDRESS.sub("", text) if content else text, event.get("error"), event.get("bytes"), content)


class MissingResult:
    """Placeholder in a list of results, for a rank without a result."""

    def __init__(self, rank: int, reason: str) -> None:
        self.rank = rank
        self.reason = reason

    def __repr__(self) -> str:
        return f"<rank {self.rank}: {self.reason}>"


class Results(Sequence[Any]):
    """Results of an ended run by rank.

    `results[rank]` raises ResultError if that rank has no result, or one that cannot be unpickled. Iterating
    and slices have a MissingResult for such a rank. So one rank's failure does not hide the other results.
    """

    def __init__(self, folder: RunFolder, status: Status, world_size: int) -> None:
        self._folder = folder
        self._status = status
        self._size = world_size
        self._loaded: dict[int, Any] = {}
        self._events = result_events(folder, status.attempt, world_size)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, rank: int) -> Any: ...
    @overload
    def __getitem__(self, rank: slice) -> list[Any]: ...
    def __getitem__(self, rank: int | slice) -> Any:
        if isinstance(rank, slice):
            return [self._or_missing(i) for i in range(self._size)[rank]]
        try:
            rank = range(self._size)[rank]
        except IndexError:
            raise IndexError(f"run {self._folder.id} has ranks 0 to {self._size - 1}, not {rank}") from None
        if rank not in self._loaded:
            self._loaded[rank] = self._load(rank)
        return self._loaded[rank]

    def __iter__(self) -> Iterator[Any]:
        yield from map(self._or_missing, range(self._size))

    def _or_missing(self, rank: int) -> Any:
        try:
            return self[rank]
        except DistError as error:
            cause = error.__cause__
            why = "" if cause is None else f" ({type(cause).__name__}: {one_line(str(cause), 300)})"
            return MissingResult(rank, self._reason(rank) or f"its result cannot be read back{why}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Results, list, tuple)):
            return list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the reprs that the ranks wrote. Nothing is unpickled."""
        parts = []
        for rank in range(min(self._size, 100)):
            reason = self._reason(rank)
            parts.append(f"<rank {rank}: {reason}>" if reason else self._text(rank, 1000))
        if self._size > 100:
            parts.append(f"… {self._size - 100} more")
        return f"[{', '.join(parts)}]"

    def _repr_html_(self) -> str:
        """Return numbers and texts in a table by rank, frames and pictures as they are.

        Nothing is unpickled.
        """
        return result_html.results_html([self._told(rank) for rank in range(self._size)])

    def _told(self, rank: int) -> result_html.KnownResult:
        files = self._folder.rank(self._status.attempt, rank)
        event = self._events.get(rank, {})
        shown = [
            one
            for told in _last_events(files.events)
            if told.get("kind") == "display"
            and (one := rich_output.from_event(told)) is not None
            and one.result
        ]
        return result_html.KnownResult(
            str(event.get("repr", "…")),
            self._reason(rank),
            result_outlines.checked(event.get("outline")),
            shown[-1] if shown else None,
            files.media,
        )

    def _text(self, rank: int, limit: int) -> str:
        return one_line(str(self._events.get(rank, {}).get("repr", "…")), limit)

    def _reason(self, rank: int) -> str:
        """Return why a rank has no result. Empty if it has one."""
        event = self._events.get(rank)
        if event is not None:
            error = event.get("error")
            return f"{one_line(str(error), 300)}; its repr: {self._text(rank, 300)}" if error else ""
        if self._path(rank).exists():
            return ""
        state = self._status.ranks[rank].state if rank < len(self._status.ranks) else self._status.state
        return f"no result, it {'is lost' if state is State.LOST else state}"

    def _path(self, rank: int) -> Path:
        return self._folder.rank(self._status.attempt, rank).result

    def _load(self, rank: int) -> Any:
        reason = self._reason(rank)
        path = self._path(rank)
        # The rank may have failed to unpickle a result that this process can unpickle.
        if reason and not path.exists():
            raise ResultError(f"rank {rank} of run {self._folder.id}: {reason}")
        from ...worker import payload

        try:
            check_owner(path)
            return payload.load(path)
        except UntrustedFile:
            raise
        except Exception as error:
            # The unpickling of a class may raise anything. The error concerns only this rank.
            raise ResultError(
                f"rank {rank} of run {self._folder.id}: its result cannot be read back "
                f"({type(error).__name__}: {one_line(str(error), 300)}); its repr: {self._text(rank, 300)}"
            ) from error
