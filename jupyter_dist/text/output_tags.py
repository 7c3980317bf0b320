"""Lines of a log that stand for what cannot be printed: `<Figure size 640x480 with 1 Axes> #3fa29c`.

The text of a figure says nothing of what is on it, so a rank adds a few digits of its content's hash
(worker/output/displays.py). Ranks that have come to the same place of the cell fold to one line all the same;
if their digits differ, the line says that instead.
"""

from __future__ import annotations

import re

__all__ = ["together", "untagged"]

_TAG = re.compile(r">( #[0-9a-f]{6})\Z")
_DIGITS = 8
_DIFFERS = " (differs by rank)"


def untagged(line: str) -> str:
    """The line without the digits; the same for ranks that show, there, something of the same kind."""
    # Nearly every line is none of these, and a flood has millions.
    return line[:-_DIGITS] if line[-_DIGITS:-6] == " #" and _TAG.search(line) else line


def together(line: str, other: str) -> str:
    """What is said of two lines that are the same without their digits."""
    return line if line == other else untagged(line.removesuffix(_DIFFERS)) + _DIFFERS
