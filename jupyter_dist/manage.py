"""What can be done with the runs on disk: list, choose, stop, remove, read their logs."""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import DistError, InputError, RunNotFound
from .folder import RunFolder, find, runs
from .job import State
from .record import reader

__all__ = [
    "RunRow",
    "choose",
    "disk_bytes",
    "ended_before",
    "follow_log",
    "list_runs",
    "read_log",
    "remove",
    "state",
    "stop",
]


@dataclass(frozen=True)
class RunRow:
    """One run as a list shows it. Times are seconds since the epoch."""

    id: str
    state: State
    backend: str
    world_size: int
    created: float
    started: float | None
    ended: float | None
    notebook: str | None
    label: str
    reason: str | None
    size_bytes: int


def list_runs(limit: int | None = 20) -> list[RunRow]:
    """The newest runs, all of them with `limit=None`. A run whose files are damaged is `lost`."""
    rows: list[RunRow] = []
    for folder in runs():
        if limit is not None and len(rows) >= limit:
            break
        row = _row(folder)
        if row is not None:
            rows.append(row)
    return rows


def _row(folder: RunFolder) -> RunRow | None:
    try:
        size = disk_bytes(folder.path)
        return _healthy_row(folder, size)
    except (RunNotFound, TypeError, ValueError) as error:
        # Damaged, or another program's: it is listed, so that it can be removed.
        created = _modified(folder)
        if created is None:
            return None  # removed while we looked
        return RunRow(folder.id, State.LOST, "?", 0, created, None, None, None, "", str(error), size)


def _healthy_row(folder: RunFolder, size: int) -> RunRow:
    status, job = reader.status(folder), reader.job(folder)
    return RunRow(
        id=folder.id,
        state=status.state,
        backend=str(job.backend),
        world_size=int(job.world_size),
        created=float(job.created),
        started=None if status.started is None else float(status.started),
        ended=None if status.ended is None else float(status.ended),
        notebook=None if job.notebook is None else str(job.notebook),
        label=str(job.label),
        reason=status.reason,
        size_bytes=size,
    )


def _modified(folder: RunFolder) -> float | None:
    try:
        return folder.path.stat().st_mtime
    except OSError:
        return None


def disk_bytes(path: Path) -> int:
    """What a folder takes on the disk. What vanishes meanwhile counts nothing; links are not followed."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return total


def choose(run_id: str | None, *, running: bool = False, last: str | None = None) -> RunFolder:
    """The run meant: the one with that id, else this kernel's last one, else the newest.

    With `running` only runs that go on are meant, and there must be no doubt which.
    Raises RunNotFound, InputError.
    """
    if run_id is not None:
        return find(run_id)
    known = list(runs())
    if not known:
        raise RunNotFound("there are no runs yet")
    own = [folder for folder in known if folder.id == last]
    if not running:
        return (own or known)[0]
    alive = [folder for folder in known if not reader.status(folder).state.ended]
    if not alive:
        raise RunNotFound("no run is running")
    mine = [folder for folder in alive if folder.id == last]
    if mine or len(alive) == 1:
        return (mine or alive)[0]
    raise InputError(f"{len(alive)} runs are running; say which: {', '.join(f.id for f in alive[:10])}")


def state(folder: RunFolder) -> State:
    """How the run stands now."""
    return reader.status(folder).state


def stop(folder: RunFolder, *, kill: bool = False, timeout_s: float = 15.0) -> State:
    """Ask the supervisor to end a run and wait for its end; repeatable. An ended run stays as it is.

    Returns the state at the end, or the one after `timeout_s`.
    """
    now = state(folder)
    if now.ended:
        return now
    try:
        folder.request("kill" if kill else "stop")
    except OSError as error:
        raise DistError(f"run {folder.id} cannot be asked to stop: {error.strerror or error}") from None
    deadline = time.monotonic() + timeout_s
    while not now.ended and time.monotonic() < deadline:
        time.sleep(0.03)
        now = state(folder)
    return now


def ended_before(when: float) -> list[RunFolder]:
    """Runs that had ended by that time."""
    found = []
    for folder in runs():
        status = reader.status(folder)
        try:
            ended = float(status.ended or status.created or 0.0)
        except (TypeError, ValueError):
            ended = 0.0
        if status.state.ended and (ended or _modified(folder) or 0.0) <= when:
            found.append(folder)
    return found


def remove(folders: Iterable[RunFolder]) -> int:
    """Delete runs; returns the bytes freed. Raises InputError, with nothing removed, if one still runs."""
    chosen = list({folder.id: folder for folder in folders}.values())
    alive = [folder.id for folder in chosen if not reader.status(folder).state.ended]
    if alive:
        raise InputError(f"{', '.join(alive)} is not at its end: `stop` it first. Nothing was removed")
    linked = [str(folder.path) for folder in chosen if folder.path.is_symlink()]
    if linked:
        raise InputError(f"{linked[0]!r} is a link, and runs never are. Nothing was removed")
    freed = 0
    for folder in chosen:
        size = disk_bytes(folder.path)
        try:
            # job.json goes last: a run that is half removed is still listed, and can be removed again.
            for entry in os.scandir(folder.path):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                elif entry.name != folder.job.name:
                    os.unlink(entry.path)
            shutil.rmtree(folder.path)
        except FileNotFoundError:
            pass  # somebody else removes it too
        except OSError as error:
            raise DistError(
                f"cannot remove {str(folder.path)!r}: {error.strerror or error} ({error.filename})"
            ) from None
        freed += size
    return freed


def _check_ranks(folder: RunFolder, ranks: Collection[int]) -> None:
    size = max(reader.job(folder).world_size, len(reader.status(folder).ranks))
    unknown = sorted(rank for rank in ranks if not 0 <= rank < size)
    if unknown:
        known = "rank 0" if size == 1 else f"ranks 0 to {size - 1}"
        raise InputError(f"run {folder.id} has {known}, not {unknown[0]}")


def read_log(
    folder: RunFolder, *, ranks: Collection[int] | None = None, tail: int | None = None
) -> tuple[list[reader.Line], int]:
    """Some ranks' lines by time, or those of all: the last `tail` ones, and how many came before them."""
    if ranks is not None:
        _check_ranks(folder, ranks)
    kept: deque[reader.Line] = deque(maxlen=tail)
    total = 0
    for batch in reader.Tail(folder).drain():
        wanted = [line for line in batch.lines if ranks is None or line.rank in ranks]
        kept.extend(wanted)
        total += len(wanted)
    return list(kept), total - len(kept)


def follow_log(
    folder: RunFolder, *, ranks: Collection[int] | None = None, tail: int | None = None
) -> Iterator[list[reader.Line]]:
    """The log's last `tail` lines (all by default), then new ones as they come, until the run ends."""
    if ranks is not None:
        _check_ranks(folder, ranks)
    source = reader.Tail(folder)
    kept: deque[reader.Line] = deque(maxlen=tail)
    for batch in source.drain():
        kept.extend(line for line in batch.lines if ranks is None or line.rank in ranks)
    yield list(kept)
    while True:
        batch = source.poll()
        lines = [line for line in batch.lines if ranks is None or line.rank in ranks]
        if lines:
            yield lines
        elif batch.status.state.ended and not batch.lines:
            return
        else:
            time.sleep(0.05)
