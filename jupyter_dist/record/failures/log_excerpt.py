"""The lines of a rank's log that may explain its failure, without its traceback."""

from __future__ import annotations

import re
from pathlib import Path

from ...folder import RunFolder
from ...job import Status
from ...text.safe import clean_lines
from ..logs.last_lines import last_lines
from .failures import RankError

__all__ = ["excerpt", "only_here"]

_LOG_LINES = 20
_OTHERS, _MORE_BYTES = 16, 256 << 10
"""The other ranks whose logs are compared, and the bytes of each log: more than of the failed rank's own."""
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


def excerpt(path: Path, error: RankError) -> tuple[str, list[str]]:
    """Return a title and the last lines of a failed rank's log. No lines if the log has none."""
    lines = last_lines(path)
    where = ""
    if error.text:
        lines, where = _besides(lines, clean_lines(error.text, limit=400).rstrip().split("\n"))
    lines = [line for line in lines if not _CHATTER.match(line)]
    if not any(lines):
        return "", []
    shown = lines[-_LOG_LINES:]
    title = "its last line" if len(shown) == 1 else f"its last {len(shown)} lines"
    return f"{title}{where}", shown


def only_here(folder: RunFolder, status: Status, error: RankError) -> list[str]:
    """Return the lines that only the failed rank printed, without those that `excerpt` shows.

    Numbers in a line do not count. Empty if no line is in two logs, because the ranks then differ in work.
    """
    others = [rank.rank for rank in status.ranks if rank.rank != error.rank][:_OTHERS]
    known: set[str] = set()
    for rank in others:
        known |= {_key(line) for line in last_lines(folder.rank(status.attempt, rank).output, _MORE_BYTES)}
    lines = last_lines(folder.rank(status.attempt, error.rank).output)
    if error.text:
        lines, _ = _besides(lines, clean_lines(error.text, limit=400).rstrip().split("\n"))
    lines = [line for line in lines if line.strip() and not _CHATTER.match(line)]
    if not any(_key(line) in known for line in lines):
        return []
    return [line for line in lines[:-_LOG_LINES] if _key(line) not in known][-_LOG_LINES:]


def _key(line: str) -> str:
    return re.sub(r"0x[0-9a-f]+|[0-9]+", "#", line.strip())


def _besides(lines: list[str], trace: list[str]) -> tuple[list[str], str]:
    """Return a log without the traceback or crash that is already shown, and where its lines are."""
    if trace[0].startswith("Fatal Python error: "):  # of a crash the log has more than what is shown
        at = next((at for at in reversed(range(len(lines))) if lines[at].endswith(trace[0])), -1)
        end = len(lines)
    else:
        at = _place(lines, trace)
        end = at + len(trace)
    if at < 0:
        return lines, " before the traceback"
    # The last line before it may have no newline, for example a question or a progress bar.
    before = [*lines[:at], *filter(None, [lines[at].removesuffix(trace[0])])]
    after = lines[end:]
    return [*before, *after], " besides the traceback" if any(after) else " before the traceback"


def _place(lines: list[str], trace: list[str]) -> int:
    """Return the line at which the traceback begins for the last time. -1 if it is not in the log."""
    for at in reversed(range(len(lines) - len(trace) + 1)):
        if lines[at].endswith(trace[0]) and lines[at + 1 : at + len(trace)] == trace[1:]:
            return at
    return -1
