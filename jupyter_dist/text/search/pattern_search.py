"""Search for patterns in log lines. It runs as a script, in a process that can be killed.

Python's `re` holds the interpreter's lock while it matches, and some expressions need hours for one short
line. In the server that would block every notebook. So expressions run in a child process.
This module uses only the standard library and nothing of this package. So the child starts in 20 ms.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["compiled", "lines", "search", "shown", "whole_lines"]

_CHUNK = 1 << 20
_WITHIN_LINES = re.compile(
    r"(?:[^\\\[(\n]|\\[dwbS.*+?()|^$\[\]{} /:,;=_'\"<>#&~-]|\[[ -Z_-~][ -Z^-~]*\]|\((?!\?))*"
)
"""Expressions that cannot match a newline, judged by their text: no `[^x]`, `\\s`, `(?s)` and the like.

Such an expression can search many lines at once. Any other expression is matched line by line.
"""
_ESCAPE = re.compile(rb"\x1b(?:\[[0-9:;<=>?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")
"""A colour or another control sequence, or the address of a link. No view shows them."""


def compiled(query: str, *, regex: bool, case: bool) -> re.Pattern[str]:
    """Return the pattern for a query. Raises re.error, OverflowError or RecursionError."""
    flags = re.MULTILINE | (0 if case else re.IGNORECASE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(query if regex else re.escape(query), flags)


def shown(data: bytes, pattern: re.Pattern[str]) -> bytes:
    """Return whole lines as a view shows them, without colours, unless the pattern names an escape."""
    if b"\x1b" not in data or "\x1b" in pattern.pattern or r"\x1b" in pattern.pattern:
        return data
    return _ESCAPE.sub(b"", data)


def search(chunks: Iterable[bytes], pattern: re.Pattern[str], *, limit: int, unfinished: bool) -> Any:
    """Return as JSON how many lines contain a match, and the numbers of the last `limit` of them.

    `unfinished`: whether a last line without a newline counts as a line.
    """
    count, base = 0, 0
    hits: deque[int] = deque(maxlen=limit)
    for data in whole_lines(chunks, unfinished):
        text = shown(data, pattern).decode("utf-8", "replace")
        for line in lines(text, pattern):
            count += 1
            hits.append(base + line)
        base += text.count("\n")
    return {"count": count, "hits": [*hits], "truncated": count > len(hits)}


def whole_lines(chunks: Iterable[Any], unfinished: bool) -> Iterator[Any]:
    """Yield the same bytes in pieces of whole lines. What is not bytes is passed on between lines."""
    rest: list[bytes] = []
    for chunk in chunks:
        if not isinstance(chunk, bytes):
            yield chunk
            continue
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            rest.append(chunk)
            continue
        yield b"".join([*rest, chunk[:cut]])
        rest = [chunk[cut:]] if cut < len(chunk) else []
    if unfinished and rest:
        yield b"".join(rest) + b"\n"


def lines(text: str, pattern: re.Pattern[str]) -> Iterator[int]:
    """Yield the numbers of lines that contain a match."""
    return (_in_text if _WITHIN_LINES.fullmatch(pattern.pattern) else _line_by_line)(text, pattern)


def _in_text(text: str, pattern: re.Pattern[str]) -> Iterator[int]:
    """Yield the numbers of lines that contain a match. Searches many lines at a time."""
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
    """Yield the line's number, the pattern's name, and the texts of its groups for value and step."""
    known = [(name, re.compile(pattern)) for name, pattern in patterns.items()]
    texts = (data.decode("utf-8", "replace") for data in whole_lines(chunks, False))
    found = (line for text in texts for line in text[:-1].split("\n"))
    for number, line in enumerate(found):
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
