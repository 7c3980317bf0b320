"""The values that ranks returned as an HTML table: a row for each rank, then mean, least and largest.

The table is part of a saved notebook, so it has no style sheet and fetches nothing. If the page runs scripts
of a trusted notebook, a click or Enter on a column's name sorts by it. Other pages drop the attributes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

__all__ = ["MOST_ROWS", "CellLike", "result_table"]

MOST_ROWS = 256
_MOST_COLUMNS = 32
_LOOK = "padding:0.15em 1em 0.15em 0;white-space:nowrap"
_LOOK_OF_TEXT = "padding:0.15em 1em 0.15em 0;text-align:left;overflow-wrap:anywhere"
_LINE = "border-top:1px solid var(--jp-border-color2,#bdbdbd)"
_SORT = (
    "var h=event.target.closest('th'),t=this;if(h&&h.closest('thead')){"
    "var i=h.cellIndex,d=h.getAttribute('aria-sort')=='ascending'?-1:1,b=t.tBodies[0];"
    "[].forEach.call(h.parentNode.cells,function(c){c.removeAttribute('aria-sort')});"
    "h.setAttribute('aria-sort',d>0?'ascending':'descending');"
    "[].slice.call(b.rows).sort(function(x,y){x=x.cells[i];y=y.cells[i];"
    "var p=parseFloat(x.title),q=parseFloat(y.title);"
    "return d*(isNaN(p)||isNaN(q)?isNaN(p)-isNaN(q)||x.textContent.localeCompare(y.textContent):p-q)"
    "}).forEach(function(r){b.appendChild(r)})}"
)


class CellLike(Protocol):
    """A value: a number or a text. The text also names a number that is not finite."""

    @property
    def name(self) -> str: ...
    @property
    def number(self) -> float | None: ...
    @property
    def text(self) -> str | None: ...
    @property
    def is_number(self) -> bool: ...


def result_table(rows: Mapping[int, Sequence[CellLike]]) -> str:
    """Return the table of the ranks' cells. A name that a rank lacks leaves a gap. Empty without rows."""
    ranks = sorted(rows)[:MOST_ROWS]
    if not ranks:
        return ""
    by_rank = {rank: {cell.name: cell for cell in rows[rank]} for rank in rows}
    names = list(dict.fromkeys(cell.name for rank in ranks for cell in rows[rank]))
    more, names = len(names) - _MOST_COLUMNS, names[:_MOST_COLUMNS]
    columns = {name: [cells[name] for cells in by_rank.values() if name in cells] for name in names}
    numeric = {name for name, cells in columns.items() if all(cell.is_number for cell in cells)}
    head = "".join(_head(name or "result", name in numeric) for name in names)
    parts = [
        f'<table style="border-collapse:collapse;margin:0.5em 0;font-variant-numeric:tabular-nums" '
        f'onclick="{html.escape(_SORT)}" onkeydown="if(event.key==\'Enter\')event.target.click()">',
        f"<thead><tr>{_head('rank', True)}{head}</tr></thead><tbody>",
    ]
    for rank in ranks:
        cells = "".join(_cell(by_rank[rank].get(name), name in numeric) for name in names)
        parts.append(f'<tr><td style="{_LOOK};text-align:right" title="{rank}">{rank}</td>{cells}</tr>')
    parts.append("</tbody>")
    if len(rows) > 1 and numeric:
        parts.append(f"<tfoot>{_foot(names, numeric, columns)}</tfoot>")
    parts.append("</table>")
    left = [f"{len(rows) - len(ranks)} more ranks"] if len(rows) > len(ranks) else []
    left += [f"{more} more columns"] if more > 0 else []
    if left:
        parts.append(f"<div>… {' and '.join(left)}</div>")
    return "".join(parts)


def _shown(number: float) -> str:
    """Return a number with at most six digits. A whole number keeps all its digits."""
    if number == int(number) and abs(number) < 1e15:
        return str(int(number))
    return f"{number:.6g}"


def _head(name: str, numeric: bool) -> str:
    align = "right" if numeric else "left"
    return (
        f'<th tabindex="0" title="sort by it" style="{_LOOK};text-align:{align};cursor:pointer">'
        f"{html.escape(name)}</th>"
    )


def _cell(cell: CellLike | None, numeric: bool) -> str:
    if cell is None:
        return "<td></td>"
    text = cell.text or "" if cell.number is None else _shown(cell.number)
    # The table is sorted by the title, which has all digits of a number.
    title = f' title="{cell.number!r}"' if cell.number is not None else ""
    look = f"{_LOOK};text-align:right" if numeric else _LOOK_OF_TEXT
    return f'<td style="{look}"{title}>{html.escape(text)}</td>'


def _foot(names: Sequence[str], numeric: set[str], columns: Mapping[str, Sequence[CellLike]]) -> str:
    rows = []
    for what in ("mean", "min", "max"):
        cells = [
            f'<td style="{_LOOK};text-align:right">{_summary(what, columns[name])}</td>'
            if name in numeric
            else "<td></td>"
            for name in names
        ]
        line = f";{_LINE}" if what == "mean" else ""
        label = f'<th style="{_LOOK};text-align:right">{what}</th>'
        rows.append(f'<tr style="opacity:0.8{line}">{label}{"".join(cells)}</tr>')
    return "".join(rows)


def _summary(what: str, cells: Sequence[CellLike]) -> str:
    values = [math.nan if cell.number is None else cell.number for cell in cells]
    if what == "mean":
        # The mean of a diverged rank stays nan, so that the user sees it.
        mean = math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan
        return "nan" if math.isnan(mean) else _shown(mean)
    finite = [value for value in values if math.isfinite(value)]
    return "" if not finite else _shown(min(finite) if what == "min" else max(finite))
