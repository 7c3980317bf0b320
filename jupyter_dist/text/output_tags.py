"""Log lines that stand for output that cannot be printed: `<Figure size 640x480 with 1 Axes> #3fa29c`.

The text of a figure does not describe its content. So a rank appends a few digits of the content's hash
(worker/output/displays.py). Lines of ranks at the same place of the cell still fold to one line. If their
digits differ, the line shows that instead of the digits.
"""

from __future__ import annotations

import re

__all__ = ["together", "untagged"]

_TAG = re.compile(r">( #[0-9a-f]{6})\Z")
_DIGITS = 8
_DIFFERS = " (differs by rank)"


def untagged(line: str) -> str:
    """Return the line without the digits. It is equal for ranks that show the same kind of output there."""
    # This check is fast because nearly no line has digits, and a log may have millions of lines.
    return line[:-_DIGITS] if line[-_DIGITS:-6] == " #" and _TAG.search(line) else line


def together(line: str, other: str) -> str:
    """Return one line for two lines that are equal without their digits."""
    return line if line == other else untagged(line.removesuffix(_DIFFERS)) + _DIFFERS
