"""A small table. It shows as aligned text, and in a notebook as HTML with everything escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from .safe import one_line
from .terminal_width import padded, width

__all__ = ["Message", "Table"]


class Message(str):
    """Text that shows without quotes when it is a cell's value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Table:
    """Rows of text under headings.

    `data` is what the rows were made from. `empty` replaces a table without rows.
    """

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], data: Any = None, empty: str = ""
    ) -> None:
        self.columns = tuple(columns)
        # File names and reasons are untrusted. Their control characters must not reach a terminal.
        self.rows = [tuple(one_line(cell, 200) for cell in row) for row in rows]
        self.data = data
        self.empty = empty

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        if not self.rows:
            return self.empty
        lines = [self.columns, *self.rows]
        widths = [max(width(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(padded(cell, room) for cell, room in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        if not self.rows:
            return f"<p>{html.escape(self.empty)}</p>"
        head = "".join(_cell("th", name) for name in self.columns)
        body = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, text: str) -> str:
    # Notebooks align table cells to the right, which suits only numbers.
    return f'<{tag} style="text-align:left">{html.escape(text)}</{tag}>'
