"""Filter that removes a traceback from log lines that are shown directly above the same traceback.

A rank that raises writes its traceback to a file, and then to its log. If the failure follows as an
exception, the exception contains the first failing rank's traceback, and names the other failures. The log
above it would repeat them, and would end with the traceback of a rank that is not the cause.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from ..folder import RunFolder
from ..record.failures.failures import failures, root_cause, traceback_of
from ..text.safe import clean, clean_lines

__all__ = ["TracebackFilter"]


@dataclass
class _Held:
    """Log lines of a rank that match its written traceback so far."""

    expected: list[str]
    lines: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return len(self.lines) == len(self.expected)


class TracebackFilter:
    """Filter of the logs of one attempt.

    It holds tracebacks back until it is clear whether a report of the failure follows.
    """

    def __init__(self, folder: RunFolder, attempt: int, limit: int) -> None:
        self._folder, self._attempt, self._limit = folder, attempt, limit
        self._held: dict[int, _Held] = {}
        self._files: dict[int, str] = {}

    def take(self, rank: int, text: str) -> list[str]:
        """Add a line of a rank's log. Returns the lines to show now, of this and of earlier lines."""
        held = self._held.get(rank)
        plain = clean(text, limit=self._limit, colour=False)
        if held is not None and held.whole:
            return [text]
        if held is None:
            # The rank writes the traceback to its file before its log. Most lines have no such file.
            if rank not in self._files:
                self._files[rank] = str(self._folder.rank(self._attempt, rank).error)
            if not os.path.exists(self._files[rank]):
                return [text]
            written = traceback_of(self._folder, self._attempt, rank)
            if not written:
                return [text]
            expected = clean_lines(written, limit=self._limit).rstrip("\n").split("\n")
            if not plain.endswith(expected[0]):
                return [text]
            self._held[rank] = _Held(expected, [expected[0]])
            # The previous output may have no newline, for example a question or a progress bar.
            before = plain[: len(plain) - len(expected[0])]
            return [before] if before.strip() else []
        if plain == held.expected[len(held.lines)]:
            held.lines.append(text)
            return []
        shown = [*held.lines, text]
        self._held[rank] = _Held([])
        return shown

    def release(self, *, told: bool) -> list[tuple[int, str]]:
        """Return the lines that must be shown after all, with their ranks.

        `told`: the run's failure follows.
        """
        reported: set[int] = set()
        if told:
            errors = failures(self._folder, self._attempt)
            # Without a root cause the failure has another reason, and its report has no traceback.
            reported = {error.rank for error in errors} if root_cause(errors) else set()
        shown = [
            (rank, line)
            for rank, held in sorted(self._held.items())
            if not (held.whole and rank in reported)
            for line in held.lines
        ]
        self._held.clear()
        return shown
