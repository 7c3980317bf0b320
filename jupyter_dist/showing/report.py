"""Say why a run failed: the first failing rank with its traceback and log, the rest folded under it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from .. import reader
from ..failures import RankError, failures
from ..folder import RunFolder
from ..job import Job, State, Status
from ..text._fold import ranges
from ..text._format import count, duration, signal_name, size
from ..text._text import clean_lines, one_line

__all__ = ["failure", "headline", "log_tail", "stopped", "what"]

_LOG_LINES = 20
_LOG_BYTES = 64 << 10
_TRACEBACK_LINES = 120
_KINDS = 5

_SIMPLE_HINTS = (
    (
        r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE",
        "each rank sees only its own GPUs, numbered from 0: use dist.device() and no index of your own",
    ),
    (
        r"EADDRINUSE|[Aa]ddress already in use|errno: 98",
        "another process has the port. A run gets a free one in MASTER_PORT: use it and run the cell again",
    ),
    (
        r"CUDA out of memory|OutOfMemoryError",
        "the GPU is full: a smaller batch per rank, or fewer ranks on each GPU (--gpus-per-worker 1)",
    ),
    (
        r"re-initialize CUDA in forked subprocess",
        "run the cell with --cold: its ranks then start without a fork",
    ),
    (
        r"Default process group has not been initialized",
        "call dist.init() (import jupyter_dist as dist) before the first collective",
    ),
    (
        r"[Cc]an't pickle|cannot pickle",
        "something that goes to another process (a DataLoader's worker, a queue) cannot be pickled: "
        "define it at the top level of a cell or in a module",
    ),
)


def failure(
    folder: RunFolder, status: Status | None = None, errors: Sequence[RankError] | None = None
) -> str:
    """The whole story of a run that failed or was lost, for a person to read. Empty when it did neither."""
    status = reader.status(folder) if status is None else status
    if status.state is State.LOST:
        return _lost(folder, status)
    if status.state is not State.FAILED:
        return ""
    errors = failures(folder, status.attempt) if errors is None else errors
    if not errors:
        return _without_rank(folder, status)
    first, others = errors[0], errors[1:]
    parts = [_headline(first, status), _trace(first), *_memory(first, status), _log(folder, status, first)]
    parts += _collateral(others, first, status)
    parts += [f"hint: {hint}" for hint in _hints(first, folder)]
    return "\n".join(part for part in parts if part)


def headline(status: Status, errors: Sequence[RankError]) -> str:
    """One line that says why: `rank 1 failed: ValueError: bad`. Empty for a run that went well."""
    if status.state is State.FAILED and errors:
        return f"rank {errors[0].rank} failed: {what(errors[0])}"
    return one_line(status.reason, 200) if status.reason and status.state.ended else ""


def stopped(status: Status) -> str:
    """One line for a run that was stopped."""
    after = (
        f" after {duration((status.ended or 0) - status.started)}" if status.started and status.ended else ""
    )
    why = f": {one_line(status.reason, 200)}" if status.reason else ""
    return f"run {status.id} was stopped{after}{why}"


def what(error: RankError) -> str:
    """One line: `ValueError: bad`, `ended by SIGKILL`."""
    if error.kind == "exception":
        message = one_line(error.message, 200)
        return f"{one_line(error.type, 80)}: {message}" if message else one_line(error.type, 80)
    if error.signal is not None:
        return f"ended by {signal_name(error.signal)}"
    if error.kind == "lost":
        return one_line(error.message, 200)
    return f"ended with exit code {error.exit_code}"


def _headline(error: RankError, status: Status) -> str:
    where = [f"host {one_line(error.host, 80)}"] if error.host else []
    if status.attempt:
        where.append(f"attempt {status.attempt + 1}")
    if error.signal is not None:
        where.append(signal_name(error.signal))
    elif error.exit_code is not None:
        where.append(f"exit code {error.exit_code}")
    first = " first" if len(status.ranks) > 1 else ""
    return f"rank {error.rank} failed{first} ({', '.join(where)}): {what(error)}"


def _trace(error: RankError) -> str:
    text = clean_lines(error.text, limit=400).rstrip()
    for frame in error.frames:
        label, file = str(frame.get("label", "")), str(frame.get("file", ""))
        if label and label != file:
            for name in (label, file):
                text = text.replace(f'File "{name}", line', f"{label}, line")
    lines = text.split("\n")
    if len(lines) > _TRACEBACK_LINES:
        half = _TRACEBACK_LINES // 2
        lines = [*lines[:half], f"  … {len(lines) - 2 * half} lines left out", *lines[-half:]]
    return "\n".join(lines)


def _memory(error: RankError, status: Status) -> list[str]:
    if error.signal is None or signal_name(error.signal) != "SIGKILL":
        return []
    peak = f" Its memory had peaked at {size(error.peak_memory_bytes)}." if error.peak_memory_bytes else ""
    killer = (
        "The kernel's out-of-memory killer did run on this machine during the run."
        if status.oom_killer
        else "The kernel's out-of-memory killer was not seen to run, so it may also have been killed by hand."
    )
    return [f"Something outside of it killed it: it may have run out of memory.{peak} {killer}"]


def _log(folder: RunFolder, status: Status, error: RankError) -> str:
    path = folder.rank(status.attempt, error.rank).output
    whole = f"whole log: {one_line(str(path), 600)}"
    lines = log_tail(path)
    # The worker prints the traceback into the log, too; it is shown already.
    trace = clean_lines(error.text, limit=400).rstrip().split("\n")
    if error.text and lines[-len(trace) :] == trace:
        lines = lines[: -len(trace)]
    if not lines:
        return whole
    shown = lines[-_LOG_LINES:]
    title = "its last line" if len(shown) == 1 else f"its last {len(shown)} lines"
    before = " before that" if error.text else ""
    return "\n".join([f"{title}{before}:", *(f"  {line}" for line in shown), whole])


def log_tail(path: Path) -> list[str]:
    """The last lines of a log, as a terminal would show them, without colours; empty when there is none."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - _LOG_BYTES))
            text = file.read(_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    lines = clean_lines(text, limit=400).rstrip().split("\n")
    if end > _LOG_BYTES:
        del lines[0]  # its beginning was not read
    return lines if any(lines) else []


def _collateral(others: Sequence[RankError], first: RankError, status: Status) -> list[str]:
    """The other ranks, folded by what they said."""
    kinds: dict[str, tuple[str, list[int]]] = {}
    for error in others:
        said = what(error)
        # Ports, addresses and steps differ from rank to rank.
        key = f"{error.collateral} {re.sub(r'0x[0-9a-f]+|[0-9]+', '#', said)}"
        said = f"ended because of it: {said}" if error.collateral else f"also failed: {said}"
        kinds.setdefault(key, (said, []))[1].append(error.rank)
    named = {first.rank, *(error.rank for error in others)}
    ended = [r.rank for r in status.ranks if r.state is State.STOPPED and r.rank not in named]
    lines = [f"{_ranks(ranks)} {said}" for said, ranks in list(kinds.values())[:_KINDS]]
    left = sum(len(ranks) for _, ranks in list(kinds.values())[_KINDS:])
    if left:
        lines.append(f"{count(left, 'more rank')} failed in other ways: run.errors has them all")
    if ended:
        lines.append(f"{_ranks(ended)} {'was' if len(ended) == 1 else 'were'} ended because of it")
    return lines


def _ranks(ranks: Iterable[int]) -> str:
    listed = sorted(ranks)
    return f"{'rank' if len(listed) == 1 else 'ranks'} {ranges(listed, 60)}"


def _hints(error: RankError, folder: RunFolder) -> list[str]:
    text = f"{error.type}: {error.message}\n{error.text}"[-20_000:]
    if not error.text:
        text += "\n".join(log_tail(folder.rank(reader.status(folder).attempt, error.rank).output)[-40:])
    found = [advice for pattern, advice in _SIMPLE_HINTS if re.search(pattern, text)]
    missing = re.search(r"No module named '([\w.]+)'", text)
    if missing:
        found.append(_missing_module(missing[1], reader.job(folder)))
    return found[:3]


def _missing_module(name: str, job: Job) -> str:
    top = name.partition(".")[0]
    places = [Path(job.cwd), *([Path(job.notebook).parent] if job.notebook else [])]
    if any((place / f"{top}.py").is_file() or (place / top / "__init__.py").is_file() for place in places):
        return f"{top!r} lies beside the notebook: --ship-modules {top} sends it along"
    return f"{top!r} is not installed for {one_line(job.python, 200)}, which runs the ranks"


def _without_rank(folder: RunFolder, status: Status) -> str:
    reason = clean_lines(status.reason, limit=400)[:4000] if status.reason else "no rank said why"
    parts = [f"run {folder.id} failed: {reason}"]
    running = [rank.rank for rank in status.ranks if rank.state is State.STOPPED and rank.started]
    if running:
        parts.append(f"{_ranks(running)} {'was' if len(running) == 1 else 'were'} ended")
    lines = log_tail(folder.supervisor_log)[-_LOG_LINES:]
    if lines and status.reason and "supervisor.log" in status.reason:
        parts += ["the supervisor's last lines:", *(f"  {line}" for line in lines)]
    for path in sorted(folder.rank(status.attempt, 0).path.parents[1].glob("launcher*.log")):
        lines = log_tail(path)[-_LOG_LINES:]
        parts += [f"{path.name}, its last lines:", *(f"  {line}" for line in lines)] if lines else []
    return "\n".join([*parts, f"logs: {one_line(str(folder.path / 'attempts' / str(status.attempt)), 600)}"])


def _lost(folder: RunFolder, status: Status) -> str:
    reason = one_line(status.reason, 400) if status.reason else "its supervisor is gone"
    return "\n".join(
        [
            f"run {folder.id} is lost: {reason}.",
            "All that its ranks wrote until then can be read: run.log(rank), run.metrics, run.errors.",
            f"files: {one_line(str(folder.path), 600)}",
        ]
    )
