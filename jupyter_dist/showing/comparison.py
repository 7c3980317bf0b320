"""Two runs beside each other, as text and as HTML: only what differs, and a line on what is equal."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import InputError
from ..folder import find
from ..queries import comparison
from ..queries.comparison import Comparison
from ..text.format import count
from ..text.safe import preformatted
from ..text.table import Table

if TYPE_CHECKING:
    from .run import Run

__all__ = ["Compared", "compare"]

_MOST_LINES, _MOST_ROWS = 200, 24
"""Lines of a diff, and rows of a table, that are shown."""


def compare(first: Run | str, second: Run | str) -> Compared:
    """Return what differs between two runs, to be shown by a notebook or `print`.

    `first`, `second`: runs, or their ids. `.data` has the differences as objects. Raises RunNotFound. Raises
    InputError if both are the same run.
    """
    folders = [find(one) if isinstance(one, str) else one.folder for one in (first, second)]
    if folders[0].id == folders[1].id:
        raise InputError(
            f"compare needs two different runs, and both are {folders[0].id}. List all runs with `%dist runs`"
        )
    return Compared(comparison.compare(*folders))


class Compared:
    """A comparison that shows itself."""

    def __init__(self, data: Comparison) -> None:
        self.data = data

    def _sections(self) -> Iterator[tuple[Table, str]]:
        """Yield each table that has rows, and a line on the rows that are left out."""
        data = self.data
        names = data.names
        for title, rows in (
            ("run", data.facts),
            ("parameter", data.parameters),
            ("package", data.packages),
            ("mean step", data.steps),
        ):
            yield from _table((title, *names), [(one.name, one.first, one.second) for one in rows])
        final = [(one.name, one.first, one.second, one.change) for one in data.final]
        yield from _table(("final value", *names, "change"), final)
        for points in (data.at_steps, data.at_times):
            cells = [(one.name, one.at, one.first, one.second, one.change) for one in points]
            yield from _table(("metric", "at", *names, "change"), cells)

    def _code(self) -> list[str]:
        lines = self.data.code
        left = len(lines) - _MOST_LINES
        return lines if left <= 0 else [*lines[:_MOST_LINES], f"… {count(left, 'more line')}"]

    def _equal(self) -> str:
        return f"Equal: {', '.join(self.data.equal)}." if self.data.equal else "Nothing is equal."

    def __repr__(self) -> str:
        parts = [
            "\n".join(f"{name}: run {id}" for name, id in zip(self.data.names, self.data.ids, strict=True))
        ]
        parts += ["\n".join(filter(None, (repr(table), more))) for table, more in self._sections()]
        if self.data.code:
            parts.append("\n".join(self._code()))
        return "\n\n".join([*parts, self._equal()])

    def _repr_html_(self) -> str:
        head = " · ".join(
            f"<b>{html.escape(name)}</b>: run {html.escape(id)}"
            for name, id in zip(self.data.names, self.data.ids, strict=True)
        )
        parts = [f"<div>{head}</div>"]
        for table, more in self._sections():
            parts += [table._repr_html_(), f"<div>{html.escape(more)}</div>" if more else ""]
        if self.data.code:
            parts.append(preformatted("\n".join(self._code()), "margin:0.5em 0;white-space:pre-wrap"))
        return f"{''.join(parts)}<div>{html.escape(self._equal())}</div>"


def _table(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Iterator[tuple[Table, str]]:
    left = len(rows) - _MOST_ROWS
    if rows:
        yield Table(columns, rows[:_MOST_ROWS]), f"… {count(left, 'more row')}" if left > 0 else ""
