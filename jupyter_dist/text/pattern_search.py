"""Search lines of a log for patterns; run as a script, in a process that can be ended.

Python's `re` holds the interpreter's lock while it matches, and some expressions need hours for one
short line. In the server that would stop every notebook, so expressions run in a child process.
Stdlib only, and imports nothing of this package: the child starts in 20 ms.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["compiled", "search"]

_CHUNK = 1 << 20
_WITHIN_LINES = re.compile(
    r"(?:[^\\\[(\n]|\\[dwbS.*+?()|^$\[\]{} /:,;=_'\"<>#&~-]|\[[ -Z_-~][ -Z^-~]*\]|\((?!\?))*"
)
"""Expressions that cannot match a newline, seen by their looks: no `[^x]`, `\\s`, `(?s)` and the like.
They can be looked for in many lines at once; the others need every line alone."""


def compiled(query: str, *, regex: bool, case: bool) -> re.Pattern[str]:
    """The pattern that finds a query. Raises re.error, OverflowError or RecursionError."""
    flags = re.MULTILINE | (0 if case else re.IGNORECASE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(query if regex else re.escape(query), flags)


def search(chunks: Iterable[bytes], pattern: re.Pattern[str], *, limit: int, unfinished: bool) -> Any:
    """JSON: how many lines hold a match, and the numbers of the first `limit` of them.

    `unfinished`: whether a last line without a newline counts as a line.
    """
    find = _in_text if _WITHIN_LINES.fullmatch(pattern.pattern) else _line_by_line
    count, base = 0, 0
    hits: list[int] = []
    for text in _whole_lines(chunks, unfinished):
        for line in find(text, pattern):
            count += 1
            if len(hits) < limit:
                hits.append(base + line)
        base += text.count("\n")
    return {"count": count, "hits": hits, "truncated": count > len(hits)}


def _whole_lines(chunks: Iterable[bytes], unfinished: bool) -> Iterator[str]:
    rest: list[bytes] = []
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            rest.append(chunk)
            continue
        yield b"".join([*rest, chunk[:cut]]).decode("utf-8", "replace")
        rest = [chunk[cut:]] if cut < len(chunk) else []
    if unfinished and rest:
        yield b"".join(rest).decode("utf-8", "replace") + "\n"


def _in_text(text: str, pattern: re.Pattern[str]) -> Iterator[int]:
    """Numbers of the lines that hold a match, many lines at a time."""
    line = seen = at = 0
    while (match := pattern.search(text, at)) and match.start() < len(text):
        begin = text.rfind("\n", 0, match.start()) + 1
        line += text.count("\n", seen, begin)
        yield line
        seen = begin
        at = text.index("\n", match.start()) + 1


def _line_by_line(text: str, pattern: re.Pattern[str]) -> Iterator[int]:
    matches = pattern.search
    for number, line in enumerate(text[:-1].split("\n")):
        if matches(line):
            yield number


def _values(
    chunks: Iterable[bytes], patterns: Mapping[str, str]
) -> Iterator[tuple[int, str, str, str | None]]:
    """Number of the line, name of the pattern, and what its groups for value and step hold."""
    known = [(name, re.compile(pattern)) for name, pattern in patterns.items()]
    lines = (line for text in _whole_lines(chunks, False) for line in text[:-1].split("\n"))
    for number, line in enumerate(lines):
        for name, pattern in known:
            for match in pattern.finditer(line):
                groups = match.groupdict()
                yield number, name, groups.get("value") or match.group(1) or "", groups.get("step")


def _main() -> None:
    asked = json.loads(sys.argv[1])
    chunks = iter(lambda: sys.stdin.buffer.read(_CHUNK), b"")
    if "patterns" in asked:
        found: Any = list(_values(chunks, asked["patterns"]))
    else:
        pattern = compiled(asked["query"], regex=True, case=asked["case"])
        found = search(chunks, pattern, limit=asked["limit"], unfinished=asked["unfinished"])
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main()
