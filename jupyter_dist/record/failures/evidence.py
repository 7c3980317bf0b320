"""What a run's folder tells about its failure: advice, memory, traceback, stacks, logs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from signal import SIGKILL

from ...folder import RunFolder
from ...job import State, Status
from ...text.fold import named
from ...text.format import duration, signal_name, size
from ...text.safe import clean_lines, one_line
from .. import reader
from ..logs.last_lines import last_lines
from . import launcher_excerpt, log_excerpt, stacks
from .failures import RankError, root_cause
from .finding import Finding, Part
from .hints import of_run
from .places import of_frames, sentences

__all__ = ["advice", "launchers", "log", "memory", "stalled", "traceback"]

_TRACEBACK_LINES = 120
_LAUNCHER_LINES = 20


def advice(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Return what to do about the first failure."""
    root = _root(status, errors)
    return Finding() if root is None else Finding(hints=tuple(of_run(folder, status.attempt, root)))


def memory(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Say that a rank killed by SIGKILL may have run out of memory."""
    root = _root(status, errors)
    if root is None or root.signal is None or signal_name(root.signal) != "SIGKILL":
        return Finding()
    peak = f" Its memory had peaked at {size(root.peak_memory_bytes)}." if root.peak_memory_bytes else ""
    killer = (
        "The kernel's out-of-memory killer did run on this machine during the run."
        if status.oom_killer
        else "The kernel's out-of-memory killer was not seen to run, so it may also have been killed by hand."
    )
    return Finding(
        causes=(f"Something outside of it killed it: it may have run out of memory.{peak} {killer}",)
    )


def traceback(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Return the place and the traceback of the first failure."""
    root = _root(status, errors)
    if root is None:
        return Finding()
    place = of_frames(root.frames)
    text = clean_lines(root.text, limit=400).rstrip()
    for frame in root.frames:
        if not isinstance(frame, Mapping):
            continue  # a rank may write anything
        label, file = str(frame.get("label", "")), str(frame.get("file", ""))
        if label and label != file:
            for name in (label, file):
                text = text.replace(f'File "{name}", line', f"{label}, line")
    lines = text.split("\n")
    if len(lines) > _TRACEBACK_LINES:
        half = _TRACEBACK_LINES // 2
        lines = [*lines[:half], f"  … {len(lines) - 2 * half} lines left out", *lines[-half:]]
    return Finding(
        places=(f"{named([root.rank])} was {place}",) if place else (),
        parts=(Part("traceback", f"Traceback of rank {root.rank}", "\n".join(lines)),) if text else (),
    )


def stalled(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Return where each rank was when a time limit or a user ended the run, and since when it was silent."""
    if _root(status, errors) is not None:
        return Finding()
    causes: tuple[str, ...] = ()
    if status.stall is not None:
        causes = (f"No rank had printed or logged anything since {_clock(status.stall.since)}.",)
    killed = [rank.rank for rank in status.ranks if rank.state is State.STOPPED and rank.signal == SIGKILL]
    if killed and status.state is State.FAILED and status.reason and "--timeout" in status.reason:
        late_s = (status.ended or 0) - (status.started or 0) - (reader.job(folder).timeout_s or 0)
        causes += (
            f"{named(killed).capitalize()} did not end after SIGTERM. The supervisor killed "
            f"{'it' if len(killed) == 1 else 'them'} {duration(late_s)} after the time limit.",
        )
    found, taken = stacks.kept(folder)
    if not found.groups or not stacks.show_the_end(taken, status):
        return Finding(causes=causes)
    title = f"Stacks: where every rank was at {_clock(taken)}"
    left = {rank.rank for rank in status.ranks if rank.state is State.SUCCEEDED}
    places = sentences(found.groups, left)
    return Finding(causes=causes, places=places, parts=(Part("stacks", title, str(found)),))


def log(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Return the last lines of the first failing rank's log, and where the log is."""
    root = _root(status, errors)
    if root is None:
        return Finding(files=f"logs: {one_line(str(folder.attempt(status.attempt)), 600)}")
    path = folder.rank(status.attempt, root.rank).output
    title, lines = log_excerpt.excerpt(path, root)
    own = log_excerpt.only_here(folder, status, root)
    parts = []
    if own:
        parts.append(Part("log", f"Lines that only rank {root.rank} printed", _indented(own)))
    if lines:
        parts.append(Part("log", f"Log of rank {root.rank}, {title}", _indented(lines)))
    return Finding(
        causes=(f"Only rank {root.rank} printed: {one_line(own[0], 200)}",) if len(own) == 1 else (),
        files=f"whole log: {one_line(str(path), 600)}",
        parts=tuple(parts),
    )


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def launchers(folder: RunFolder, status: Status, errors: Sequence[RankError]) -> Finding:
    """Return the last lines of the launchers and the supervisor, if no rank says why the run failed."""
    if status.state is not State.FAILED or _root(status, errors) is not None:
        return Finding()
    parts = []
    lines = last_lines(folder.supervisor_log)[-_LAUNCHER_LINES:]
    if lines and status.reason and folder.supervisor_log.name in status.reason:
        parts.append(_launcher_part("The supervisor", lines))
    for path in folder.launcher_logs(status.attempt):
        lines = launcher_excerpt.excerpt(path)
        if lines:
            parts.append(_launcher_part(path.name, lines))
    return Finding(parts=tuple(parts))


def _launcher_part(name: str, lines: Sequence[str]) -> Part:
    return Part("launcher", f"{name}, its last lines", _indented(lines))


def _root(status: Status, errors: Sequence[RankError]) -> RankError | None:
    """Return the failure that others followed from. None if no rank failed by itself."""
    return root_cause(errors) if status.state is State.FAILED else None


def _clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))
