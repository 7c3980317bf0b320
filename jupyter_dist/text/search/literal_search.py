"""Search for a text in log lines. Works on bytes, and decodes only where that is necessary."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from typing import Any

from . import pattern_search

__all__ = ["Literal", "search"]

_FOLDED = "\u017f\u212a\u0130\u0131"
"""Characters outside of ASCII that equal a letter of ASCII if case is ignored."""
_FOLDED_BYTES = [letter.encode() for letter in _FOLDED]
_DENSE = 16
"""If more than one line in so many has the text, all lines are looked at one by one."""


class Literal:
    """A text to search for. It matches the same lines as `pattern_search` with the escaped text."""

    def __init__(self, query: str, *, case: bool) -> None:
        self._pattern = pattern_search.compiled(query, regex=False, case=case)
        self._case = case
        self._letters = query.lower()
        self._bytes: bytes | None = None
        if (case and "\ufffd" not in query) or query.isascii():
            # No text contains half a surrogate pair.
            with contextlib.suppress(UnicodeEncodeError):
                self._bytes = (query if case else self._letters).encode()

    def may_match(self, data: bytes) -> bool:
        """Return False only if no line of the data matches. The check is cheap."""
        return self._may_match(pattern_search.shown(data, self._pattern))

    def _may_match(self, data: bytes) -> bool:
        if self._bytes is None or self._needs_text(data):
            return not data.isascii() or any(letter in self._letters for letter in _FOLDED.lower() + _FOLDED)
        return self._bytes in (data if self._case else data.lower())

    def lines(self, data: bytes) -> list[int]:
        """Return the numbers of the lines that match. `data`: whole lines, each with its newline."""
        data = pattern_search.shown(data, self._pattern)
        if not self._may_match(data):
            return []
        if self._bytes is None or self._needs_text(data):
            return [*pattern_search.lines(data.decode("utf-8", "replace"), self._pattern)]
        query, text = self._bytes, data if self._case else data.lower()
        if text.count(query) * _DENSE > text.count(b"\n"):
            return [number for number, line in enumerate(text.split(b"\n")) if query in line]
        found = []
        at = seen = number = 0
        while (at := text.find(query, at)) >= 0:
            number += text.count(b"\n", seen, at)
            found.append(number)
            seen = at
            at = text.find(b"\n", at)
            if at < 0:
                break
        return found

    def _needs_text(self, data: bytes) -> bool:
        if self._case or data.isascii():
            return False
        return any(letter in self._letters for letter in "iks") and any(one in data for one in _FOLDED_BYTES)


def search(pieces: Iterable[bytes | int], literal: Literal, *, limit: int, unfinished: bool) -> Any:
    """Return the same as `pattern_search.search`. A piece may be a number of lines that do not match."""
    count = base = 0
    hits: deque[int] = deque(maxlen=limit)
    for piece in pattern_search.whole_lines(pieces, unfinished):
        if isinstance(piece, int):
            base += piece
            continue
        found = literal.lines(piece)
        count += len(found)
        hits.extend(base + number for number in found[-limit:])
        base += piece.count(b"\n")
    return {"count": count, "hits": [*hits], "truncated": count > len(hits)}
