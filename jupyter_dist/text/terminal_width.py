"""Columns that a text takes in a terminal: East Asian letters take two, and accents of their own take none.

https://www.unicode.org/reports/tr11/ has the widths.
"""

from __future__ import annotations

import unicodedata

__all__ = ["cut", "padded", "width"]


def width(text: str) -> int:
    """Return how many columns a text without control characters takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, columns: int) -> str:
    """Cut a text to so many columns. "…" marks a cut."""
    used = kept = 0
    for number, char in enumerate(text, 1):
        used += _columns(char)
        if used > columns:
            return f"{text[:kept]}…"
        if used < columns:
            kept = number
    return text


def padded(text: str, columns: int) -> str:
    """Fill a text with blanks up to so many columns."""
    return text + " " * (columns - width(text))


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
