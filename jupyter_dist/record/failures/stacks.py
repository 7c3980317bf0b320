"""Python stacks that a run's ranks have written: reading, grouping, rendering.

The supervisor signals a rank, and the rank's faulthandler appends a dump of its main thread to `stacks.txt`.
That works even if the rank waits in C code and holds the GIL. A thread of the rank appends a dump of all
threads a moment later.
"""

from __future__ import annotations

import html
import linecache
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...folder import RunFolder
from ...job import State, Status
from ...text.fold import named
from ...text.format import attach_call
from ...text.safe import clean, one_line, preformatted
from ...text.stack_dumps import Dump, Frame, Thread, escaped, parse
from ...worker import layout, listing
from .. import reader

__all__ = [
    "AFTER_CELL",
    "Dump",
    "Frame",
    "Stacks",
    "Thread",
    "kept",
    "of_crash",
    "read",
    "read_after",
    "running",
    "show_the_end",
    "sizes",
    "written_after",
]

_OURS = re.compile(r"(^|[/\\])jupyter_dist[/\\](worker|agent|processes|supervise|launch|backends)\b")
_ANSWERING = re.compile(r"[/\\]jupyter_dist[/\\]worker[/\\]stacks_file\.py$")
_STARTERS = ("<frozen runpy>", "runpy.py", "<frozen importlib._bootstrap>")
_READERS = re.compile(r"[/\\](tensorflow|keras|tf_keras)[/\\]")
_UNKNOWN = "???"
"""The file of a frame of which faulthandler has only the function."""
_NO_FRAME = "(no Python frame)"
AFTER_CELL = {
    "_run_exit_handlers": "in an exit handler, after the end of the cell",
    "_show_open": "showing the open figures, after the end of the cell",
    "_wait_for_threads": "waiting for a thread, after the end of the cell",
}
"""Functions of `worker` in which a rank is after its cell, and how a stack shows them."""
_FATAL = "Fatal Python error: "
_MAX_DUMP = 1 << 20
_RECENT_S = 60.0
"""Stacks that are older than this at the run's end do not show where the ranks were."""


@dataclass(frozen=True)
class Stacks:
    """Stacks of a run's ranks.

    `str()` returns them as text, grouped. A notebook shows the groups side by side.

    `missing` are ranks that wrote no stack within the timeout.
    """

    dumps: Mapping[int, Dump]
    missing: tuple[int, ...] = ()
    timeout_s: float | None = None
    all_threads: bool = False
    id: str = ""
    """The run's id."""
    groups: list[tuple[tuple[int, ...], tuple[Frame, ...]]] = field(init=False)
    """(ranks, frames of their main thread). If most ranks are at one place, the other ranks come first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", _group(self.dumps))

    @property
    def hint(self) -> str:
        """`rank 1 is elsewhere` if most ranks are at one place and a few are not. Otherwise empty."""
        if not _has_majority(self.groups):
            return ""
        others = [rank for ranks, _ in self.groups[:-1] for rank in ranks]
        if not others:
            return ""
        return f"{named(others)} {'is' if len(others) == 1 else 'are'} elsewhere"

    def inputs(self) -> dict[int, tuple[Frame, ...]]:
        """Return the frames of a thread in which TensorFlow or Keras runs code of a cell, by rank.

        A thread that the cell has started by itself, such as a monitor, reads no input.
        """
        return {
            rank: thread.frames
            for rank, dump in self.dumps.items()
            for thread in reversed(dump.threads[1:])
            if thread.is_input and any(frame.label for frame in thread.frames)
        }

    @property
    def missing_text(self) -> str:
        if not self.missing:
            return ""
        within = f" within {self.timeout_s:g} s" if self.timeout_s is not None else ""
        return f"{named(self.missing)} gave no stack{within}"

    def __str__(self) -> str:
        parts = [text for text in (self.hint, self.missing_text) if text]
        for ranks, frames in self.groups:
            parts.append(f"{named(ranks)} ({len(ranks)})\n{_indented(frames)}")
            if self.all_threads:
                parts += [self._thread_text(rank) for rank in ranks]
        return "\n".join(parts) if parts else "no rank is running"

    def _thread_text(self, rank: int) -> str:
        blocks = []
        for number, thread in enumerate(self.dumps[rank].threads[1:], 1):
            name = f" {thread.name!r}" if thread.name else ""
            blocks.append(f"rank {rank}, thread {number}{name}\n{_indented(thread.frames)}")
        return "\n".join(blocks) or f"rank {rank} has no other thread"

    def __repr__(self) -> str:
        return f"<Stacks of {len(self.dumps)} ranks in {len(self.groups)} groups>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        columns = []
        for ranks, frames in self.groups[:12]:
            body = _indented(frames).removeprefix("  ").replace("\n  ", "\n")
            columns.append(
                '<div style="flex:1 1 20em;min-width:0"><div style="font-weight:600">'
                f"{html.escape(named(ranks))} ({len(ranks)})</div>"
                f"{preformatted(body, 'margin:0.3em 0 0;overflow-x:auto')}</div>"
            )
        notes = [text for text in (self.hint, self.missing_text) if text]
        if len(self.groups) > 12:
            notes.append(f"{len(self.groups) - 12} more groups: print({attach_call(self.id)}.stacks())")
        head = "".join(f"<div>{html.escape(note)}</div>" for note in notes)
        if not columns and not notes:
            head = "<div>no rank is running</div>"
        return (
            f'<div style="font-size:0.9em">{head}'
            f'<div style="display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start">{"".join(columns)}'
            "</div></div>"
        )


def _indented(frames: Iterable[Frame]) -> str:
    return "\n".join(f"  {line}" for frame in frames for line in str(frame).split("\n"))


def _group(dumps: Mapping[int, Dump]) -> list[tuple[tuple[int, ...], tuple[Frame, ...]]]:
    by_frames: dict[tuple[Frame, ...], list[int]] = {}
    for rank in sorted(dumps):
        by_frames.setdefault(dumps[rank].main.frames, []).append(rank)
    groups = [(tuple(ranks), frames) for frames, ranks in by_frames.items()]
    largest_last = sorted(groups, key=lambda group: len(group[0]))
    return largest_last if _has_majority(largest_last) else groups


def _has_majority(groups: list[tuple[tuple[int, ...], tuple[Frame, ...]]]) -> bool:
    total = sum(len(ranks) for ranks, _ in groups)
    return bool(groups) and 2 * len(groups[-1][0]) > total


def _at_the_end(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the frames of a rank that is after its cell, with a first line that says so. Else nothing."""
    for number, frame in enumerate(frames):
        if frame.function in AFTER_CELL and _OURS.search(frame.file):
            within = frames[number + 1 :] if frame.function == "_run_exit_handlers" else ()
            return Frame("", None, AFTER_CELL[frame.function]), *within
    return ()


def _is_ours(frame: Frame) -> bool:
    return bool(_OURS.search(frame.file)) or frame.file.endswith(_STARTERS)


def _answers(thread: Thread) -> bool:
    """Return whether the rank has started this thread to write its stacks (worker/stacks_file.py)."""
    return any(_ANSWERING.search(frame.file) for frame in thread.frames)


class _Sources:
    """Labels and source lines of the run's files.

    The payload has those of the cell, the disk has the others.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._labels: Mapping[str, str] = {}
        self._sources: Mapping[str, str] = {}
        from ...worker import payload

        try:
            header = payload.read_header(folder.payload)
            self._labels = {escaped(file): str(label) for file, label in header["labels"].items()}
            self._sources = {escaped(file): str(text) for file, text in header["sources"].items()}
        except Exception:  # stacks without labels are still useful, whatever is wrong with the file
            return

    def dump(self, found: Dump) -> Dump:
        main, *others = found.threads
        shown = [main, *(thread for thread in others if not _answers(thread))]
        return Dump(tuple(map(self._thread, shown)), found.is_partial)

    def _thread(self, thread: Thread) -> Thread:
        frames = tuple(
            self._frame(frame) for frame in _at_the_end(thread.frames) or self._users(thread.frames)
        )
        name = one_line(thread.name, 40)
        is_input = self._is_input(thread.frames)
        return Thread(frames or (Frame("", None, _NO_FRAME),), name, thread.current, is_input)

    def _is_input(self, frames: tuple[Frame, ...]) -> bool:
        """Return whether TensorFlow or Keras has called the code of the cell."""
        first = next((i for i, frame in enumerate(frames) if frame.file in self._labels), 0)
        return any(_READERS.search(frame.file) for frame in frames[:first])

    def _users(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """Remove the worker's own calls, those that lead to the cell and those that the cell made."""
        first = next((i for i, frame in enumerate(frames) if frame.file in self._sources), None)
        if first is None:
            first = next((i for i, frame in enumerate(frames) if not _is_ours(frame)), None)
        if first is None:
            return frames
        return tuple(frame for frame in frames[first:] if not _OURS.search(frame.file))

    def _frame(self, frame: Frame) -> Frame:
        if frame.file in ("", _UNKNOWN):
            return Frame("", None, one_line(frame.function, 120))
        return Frame(
            clean(frame.file, limit=300, colour=False),
            frame.line,
            one_line(frame.function, 120),
            one_line(self._labels.get(frame.file, ""), 60),
            one_line(self._source(frame), 160),
        )

    def _source(self, frame: Frame) -> str:
        if frame.line is None:
            return ""
        text = self._sources.get(frame.file)
        if text is None:
            return linecache.getline(frame.file, frame.line)
        lines = text.splitlines()
        return lines[frame.line - 1] if 0 < frame.line <= len(lines) else ""


def running(folder: RunFolder) -> tuple[int, list[int]]:
    """Return the current attempt and its running ranks. Only a running rank can write a stack."""
    status = reader.status(folder)
    return status.attempt, [rank.rank for rank in status.ranks if rank.state is State.RUNNING]


def _tail(path: Path, start: int = 0) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - _MAX_DUMP))
            return file.read(_MAX_DUMP).decode("utf-8", "replace")
    except OSError:
        return ""


def read(folder: RunFolder, *, since: float = 0.0) -> Stacks:
    """Read the newest stacks on disk of the running ranks.

    Sends no signal. A stack older than `since` is missing.
    """
    attempt, live = running(folder)
    sources = _Sources(folder)
    found = {}
    for rank in live:
        path = folder.rank(attempt, rank).stacks
        try:
            recent = path.stat().st_mtime >= since
        except OSError:
            continue
        dumps = parse(_tail(path)) if recent else []
        if dumps:
            found[rank] = sources.dump(dumps[-1])
    return Stacks(found, tuple(rank for rank in live if rank not in found), id=folder.id)


def show_the_end(taken: float, status: Status) -> bool:
    """Return whether stacks that were taken at this time show where the ranks were when the run ended."""
    return status.stall is not None or (status.ended or taken) - taken <= _RECENT_S


def kept(folder: RunFolder) -> tuple[Stacks, float]:
    """Read the newest stacks of the newest attempt, also of a run that has ended. Sends no signal.

    Of a rank that was asked to end, they are those from before the request, if there are any.

    Returns the stacks and the time of the newest one, which is 0 if there is none.
    """
    status = reader.status(folder)
    sources = _Sources(folder)
    found, newest = {}, 0.0
    for rank in status.ranks:
        path = folder.rank(status.attempt, rank.rank).stacks
        text = _tail(path) if listing.size(path) else ""
        if dumps := parse(text.partition(layout.STACKS_END)[0]) or parse(text):
            found[rank.rank] = sources.dump(dumps[-1])
            newest = max(newest, path.stat().st_mtime)
    silent = [rank.rank for rank in status.ranks if found and rank.rank not in found]
    return Stacks(found, tuple(silent), id=folder.id), newest


def of_crash(folder: RunFolder, log: Path) -> tuple[str, tuple[Frame, ...]]:
    """Return the fatal error at the end of a rank's log with the rank's frames, and the frames by themselves.

    Both are empty if the log has no such error.
    """
    text = _tail(log)
    begin = text.rfind(_FATAL)
    if begin < 0:
        return "", ()
    text = text[begin:]
    dumps = parse(text)
    where = [thread for dump in dumps for thread in dump.threads if thread.current]
    where = where or [dump.main for dump in dumps]  # a thread of C++, such as gloo's, has crashed
    frames = _Sources(folder).dump(Dump(tuple(where[:1]))).main.frames if where else ()
    return "\n".join(filter(None, [one_line(text.partition("\n")[0], 200), _indented(frames)])), frames


def sizes(folder: RunFolder, attempt: int, ranks: Iterable[int]) -> dict[int, int]:
    """Return how many bytes of stacks each of these ranks has written."""
    return {rank: listing.size(folder.rank(attempt, rank).stacks) for rank in ranks}


def read_after(folder: RunFolder, attempt: int, before: Mapping[int, int]) -> dict[int, Dump]:
    """Return the newest stack of each rank whose file is larger than its size in `before` (see `sizes`)."""
    sources = _Sources(folder)
    return {rank: sources.dump(dump) for rank, dump in written_after(folder, attempt, before).items()}


def written_after(folder: RunFolder, attempt: int, before: Mapping[int, int]) -> dict[int, Dump]:
    """Return what `read_after` does, as the ranks have written it: without labels and source lines."""
    found = {}
    for rank, size in before.items():
        path = folder.rank(attempt, rank).stacks
        dumps = parse(_tail(path, size)) if listing.size(path) > size else []
        if dumps:
            found[rank] = dumps[-1]
    return found
