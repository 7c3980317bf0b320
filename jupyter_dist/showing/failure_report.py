"""Report of a failed run: the first failing rank with its traceback and log, the other ranks folded below."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..folder import RunFolder
from ..job import State, Status
from ..record import reader
from ..record.failures import hints
from ..record.failures.failures import RankError, failures
from ..record.logs.last_lines import last_lines
from ..text.fold import ranges
from ..text.format import count, duration, signal_name, size
from ..text.safe import clean_lines, one_line
from . import display

__all__ = ["cure", "failure", "headline", "stopped", "unwatched", "what"]

_LOG_LINES = 20
_TRACEBACK_LINES = 120
_KINDS = 5
_CHATTER = re.compile(
    r"""I0000\ \d\d:\d\d:[\d.]+\ |                                       # absl, before it is set up
    WARNING:\ All\ log\ messages\ before\ absl::InitializeLog|
    \d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d\.\d+:\ I\ (?:tensorflow|external|xla|tsl)\b|
    To\ enable\ the\ following\ instructions:.*rebuild\ TensorFlow|
    [EW]0000\ .*(?:factory|computation\ placer\ already\ registered)|
    \d{4}-.*:\ [EW]\ .*Unable\ to\ register\ cu\w+\ factory""",
    re.VERBOSE,
)
"""Messages that TensorFlow prints at every import. They stay in the log, and explain no failure."""


def failure(
    folder: RunFolder, status: Status | None = None, errors: Sequence[RankError] | None = None
) -> str:
    """Return the whole report of a run that failed or was lost. Empty for any other run."""
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
    parts += [f"hint: {hint}" for hint in hints.of_run(folder, status.attempt, first)]
    return "\n".join(part for part in parts if part)


def headline(status: Status, errors: Sequence[RankError]) -> str:
    """Return one line with the cause: `rank 1 failed: ValueError: bad`. Empty for a run that succeeded."""
    if status.state is State.FAILED and errors:
        return f"rank {errors[0].rank} failed: {what(errors[0])}"
    says = status.state.ended or status.state is State.UNWATCHED
    return one_line(status.reason, 200) if status.reason and says else ""


def stopped(status: Status) -> str:
    """Return one line for a run that was stopped."""
    after = (
        f" after {duration((status.ended or 0) - status.started)}" if status.started and status.ended else ""
    )
    why = f": {one_line(status.reason, 200)}" if status.reason else ""
    return f"run {status.id} was stopped{after}{why}"


def unwatched(status: Status) -> str:
    """Return what is known of an unwatched run, and what to do about it."""
    why = f": {one_line(status.reason, 400)}" if status.reason else ""
    return f"run {status.id} is unwatched{why}\n{cure(status)}"


def cure(status: Status) -> str:
    """Return one line on what to do about an unwatched run."""
    command = display.command()
    return (
        f"its ranks may go on, and nobody reads what they write: `{command} attach {status.id}` takes it on, "
        f"`{command} stop {status.id}` ends it"
    )


def what(error: RankError) -> str:
    """Return one line: `ValueError: bad`, `ended by SIGKILL`."""
    if error.kind == "exception":
        message = one_line(_gist(error.message), 200)
        return f"{one_line(error.type, 80)}: {message}" if message else one_line(error.type, 80)
    if error.signal is not None:
        return f"ended by {signal_name(error.signal)}"
    if error.kind == "lost":
        return one_line(error.message, 200)
    return f"ended with exit code {error.exit_code}"


def _gist(message: str) -> str:
    """Return a message without a traceback inside it: its first and last line.

    A DataLoader's message has one.
    """
    first, _, rest = message.strip().partition("\n")
    return f"{first} {rest.splitlines()[-1]}" if "Traceback (most recent call last)" in rest else message


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
    lines = last_lines(path)
    where = ""
    if error.text:
        lines, where = _besides(lines, clean_lines(error.text, limit=400).rstrip().split("\n"))
    lines = [line for line in lines if not _CHATTER.match(line)]
    if not any(lines):
        return whole
    shown = lines[-_LOG_LINES:]
    title = "its last line" if len(shown) == 1 else f"its last {len(shown)} lines"
    return "\n".join([f"{title}{where}:", *(f"  {line}" for line in shown), whole])


def _besides(lines: list[str], trace: list[str]) -> tuple[list[str], str]:
    """Return a log without the traceback or crash that is already shown, and where its lines are."""
    if trace[0].startswith("Fatal Python error: "):  # of a crash the log has more than what is shown
        at = next((at for at in reversed(range(len(lines))) if lines[at].endswith(trace[0])), -1)
        end = len(lines)
    else:
        at = _place(lines, trace)
        end = at + len(trace)
    if at < 0:
        return lines, " before that"
    # The last line before it may have no newline, for example a question or a progress bar.
    before = [*lines[:at], *filter(None, [lines[at].removesuffix(trace[0])])]
    after = lines[end:]
    return [*before, *after], " besides that" if any(after) else " before that"


def _place(lines: list[str], trace: list[str]) -> int:
    """Return the line at which the traceback begins for the last time. -1 if it is not in the log."""
    for at in reversed(range(len(lines) - len(trace) + 1)):
        if lines[at].endswith(trace[0]) and lines[at + 1 : at + len(trace)] == trace[1:]:
            return at
    return -1


def _collateral(others: Sequence[RankError], first: RankError, status: Status) -> list[str]:
    """Return lines on the other ranks, folded by their error."""
    kinds: dict[str, tuple[str, list[int]]] = {}
    for error in others:
        said = what(error)
        # Ports, addresses and steps differ between ranks.
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


def _without_rank(folder: RunFolder, status: Status) -> str:
    reason = clean_lines(status.reason, limit=400)[:4000] if status.reason else "no rank said why"
    parts = [f"run {folder.id} failed: {reason}"]
    running = [rank.rank for rank in status.ranks if rank.state is State.STOPPED and rank.started]
    if running:
        parts.append(f"{_ranks(running)} {'was' if len(running) == 1 else 'were'} ended")
    lines = last_lines(folder.supervisor_log)[-_LOG_LINES:]
    if lines and status.reason and folder.supervisor_log.name in status.reason:
        parts += ["the supervisor's last lines:", *(f"  {line}" for line in lines)]
    for path in folder.launcher_logs(status.attempt):
        lines = last_lines(path)[-_LOG_LINES:]
        parts += [f"{path.name}, its last lines:", *(f"  {line}" for line in lines)] if lines else []
    return "\n".join([*parts, f"logs: {one_line(str(folder.attempt(status.attempt)), 600)}"])


def _lost(folder: RunFolder, status: Status) -> str:
    reason = one_line(status.reason, 400) if status.reason else "its supervisor is gone"
    return "\n".join(
        [
            f"run {folder.id} is lost: {reason}.",
            "All that its ranks wrote until then can be read: run.log(rank), run.metrics, run.errors.",
            f"files: {one_line(str(folder.path), 600)}",
        ]
    )
