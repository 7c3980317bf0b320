"""Leave a traceback out of the lines of a log that is shown right above it.

A rank that raises writes its traceback down, and then into its log. Where the run's failure follows as an
exception, that tells the first failing rank's traceback; in the log above it, the same would stand once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..folder import RunFolder
from ..record.failures.failures import failures, traceback_of
from ..text.safe import clean, clean_lines

__all__ = ["TracebackFilter"]


@dataclass
class _Held:
    """The lines of a rank that are what it wrote down, so far."""

    text: str
    expected: list[str]
    lines: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return len(self.lines) == len(self.expected)


class TracebackFilter:
    """Holds back the tracebacks in the logs of one attempt until it is known which of them is told below."""

    def __init__(self, folder: RunFolder, attempt: int, limit: int) -> None:
        self._folder, self._attempt, self._limit = folder, attempt, limit
        self._held: dict[int, _Held] = {}

    def take(self, rank: int, text: str) -> list[str]:
        """A line of a rank's log; returns what of it, and of what was held back, is to be shown now."""
        held = self._held.get(rank)
        plain = clean(text, limit=self._limit, colour=False)
        if held is not None and held.whole:
            return [text]
        if held is None:
            # The rank writes it down before its log has it.
            written = traceback_of(self._folder, self._attempt, rank)
            if not written:
                return [text]
            expected = clean_lines(written, limit=self._limit).rstrip("\n").split("\n")
            if not plain.endswith(expected[0]):
                return [text]
            self._held[rank] = _Held(written, expected, [expected[0]])
            # What was printed last may have had no end of its line: a question, a progress bar.
            before = plain[: len(plain) - len(expected[0])]
            return [before] if before.strip() else []
        if plain == held.expected[len(held.lines)]:
            held.lines.append(text)
            return []
        shown = [*held.lines, text]
        self._held[rank] = _Held("", [])
        return shown

    def release(self, *, told: bool) -> list[tuple[int, str]]:
        """What is to be shown after all, with its ranks; `told`: the run's failure follows."""
        first = ""
        if told:
            errors = failures(self._folder, self._attempt)
            first = errors[0].text if errors else ""
        shown = [
            (rank, line)
            for rank, held in sorted(self._held.items())
            if not (first and held.whole and held.text == first)
            for line in held.lines
        ]
        self._held.clear()
        return shown
