"""Rich output and logged media as HTML for a saved notebook. It needs no kernel, no server and no script.

The displays appear between lines of the log, as in the output of any cell. The HTML has lines near each
display and the last lines.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ..errors import DistError
from ..folder import RunFolder
from ..job import Job, Status, rank_count
from ..queries import media_pages
from ..queries.answers.logs import LogLine
from ..queries.answers.media import Display
from ..queries.logs import pages
from ..text.fold import ranges
from ..text.format import attach_call, count
from ..text.safe import clean, one_line, preformatted
from .rich_output_html import Drawing, Shown

__all__ = ["Kept", "kept_displays"]

_MOST_LINES, _MOST_CHARS = 100, 300
_MOST_NAMES = 30
_BEFORE, _AFTER, _LAST = 6, 3, 20
"""Lines shown before a display, after a display, and at the log's end."""
_PRE = "margin:0;white-space:pre-wrap"


class Kept(NamedTuple):
    """The displays as HTML, and whether the HTML contains the log's last lines."""

    html: str
    has_log: bool


class _Place(NamedTuple):
    """Position of a display between rows of the log of all ranks."""

    before: int
    """The row that follows."""
    taken: set[int]
    """Rows with the same content as text, which are left out."""
    exhibits: Shown


def kept_displays(folder: RunFolder, job: Job, status: Status) -> Kept:
    """Return the displays of the run's last attempt, and the last step of each logged medium below them.

    The job sets whether all displays that differ are included, or only the first rank's. The HTML has at most
    2 MB, and displays left out are counted. Empty if there are no displays.
    """
    if job.kept_displays == "none":
        return Kept("", False)
    try:
        page = media_pages.displays(folder, status.attempt, count=media_pages.MOST_PAGE)
        size = rank_count(job, status)
        drawing = Drawing(folder, job, status.attempt, size, page["start"])
        places = _places(page["displays"])
        parts = list(_in_order(drawing, places)) if places else []
    except DistError:
        return Kept("", False)
    for display in page["displays"]:
        placed = {place["rank"] for place in display.get("places", ())}
        parts.append(drawing.row(_of_ranks(display, {*range(size)} - placed)))
    parts += _media(drawing)
    if drawing.left_out:
        parts.append(f"<div>… {count(drawing.left_out, 'more display')}</div>")
    return Kept("".join(parts), bool(places))


def _media(drawing: Drawing) -> Iterator[str]:
    """Yield the last step of each name."""
    folder, attempt = drawing.folder, drawing.attempt
    known = media_pages.series(folder, attempt)["series"]
    for series in known[:_MOST_NAMES]:
        page = media_pages.logged(folder, series["name"], series["count"] - 1, 1, attempt)
        for logged in page["steps"]:
            shown = drawing.row([(exhibit["ranks"], exhibit) for exhibit in logged["exhibits"]])
            if shown:
                what = f"<b>{html.escape(one_line(series['name'], 80))}</b> · step {logged['step']}"
                yield f'<div style="margin-top:0.5em">{what}</div>{shown}'
    if len(known) > _MOST_NAMES:
        where = html.escape(f"{attach_call(folder.id)}.media")
        yield f"<div>… {count(len(known) - _MOST_NAMES, 'more name')}: <code>{where}</code></div>"


def _places(displays: Iterable[Display]) -> list[_Place]:
    """Return the position of each display. All ranks share the position of the first rank that shows it."""
    found = []
    for display in displays:
        places = display.get("places", ())
        if places:
            first = min(places, key=lambda place: place["row"])
            taken = {row for one in places for row in range(one["row"], one["row"] + one["rows"])}
            shown = _of_ranks(display, {place["rank"] for place in places})
            found.append(_Place(first["row"] + (0 if first["rows"] else 1), taken, shown))
    return sorted(found, key=lambda place: place.before)


def _of_ranks(display: Display, ranks: set[int]) -> Shown:
    """Return what these ranks show. The bytes are those of the exhibit's own first rank."""
    found = [
        ([rank for rank in exhibit["ranks"] if rank in ranks], exhibit) for exhibit in display["exhibits"]
    ]
    return [(mine, exhibit) for mine, exhibit in found if mine]


def _in_order(drawing: Drawing, places: Sequence[_Place]) -> Iterator[str]:
    """Yield some lines of the log, and between them the displays."""
    lines = _Lines(drawing, set().union(*(place.taken for place in places)))
    at = 0
    for number, place in enumerate(places):
        yield lines.between(at, place.before, _AFTER if number else 0, _BEFORE)
        yield drawing.row(place.exhibits)
        at = place.before
    yield lines.between(at, lines.total, _AFTER, _LAST)


class _Lines:
    """Selected log lines, of limited number."""

    def __init__(self, drawing: Drawing, taken: set[int]) -> None:
        self._drawing, self._taken = drawing, taken
        self.total = pages.page(drawing.folder, attempt=drawing.attempt, start=-1, count=1)["total"]
        self._left = _MOST_LINES - _LAST

    def between(self, first: int, end: int, after: int, before: int) -> str:
        """Return lines [first, end): all, or `after` lines at the beginning and `before` lines at the end."""
        if end < self.total:  # the log's last lines are always included
            after, before = min(after, self._left), min(before, self._left)
        number = end - first - sum(first <= row < end for row in self._taken)
        if number > after + before + 1:
            told = self._read(first, end, after)
            told.append(f"… {count(number - after - before, 'line')}")
            told += self._read(end - 1, first - 1, before)[::-1]
        else:
            told = self._read(first, end, number)
        if end < self.total:
            self._left = max(0, self._left - len(told))
        return preformatted("\n".join(told), _PRE) if told else ""

    def _read(self, first: int, end: int, most: int) -> list[str]:
        """Return at most `most` lines that are not left out, from `first` towards `end`."""
        numbers = (row for row in range(first, end, 1 if first < end else -1) if row not in self._taken)
        wanted = list(islice(numbers, most))
        if not wanted:
            return []
        low = min(wanted)
        page = pages.page(
            self._drawing.folder,
            attempt=self._drawing.attempt,
            start=low,
            count=min(1000, max(wanted) - low + 1),
        )
        lines = {line["n"]: line for line in page["lines"]}
        return [self._text(lines[row]) for row in wanted if row in lines]

    def _text(self, line: LogLine) -> str:
        text = clean(line["text"], limit=_MOST_CHARS, colour=False)
        return f"[{ranges(line.get('ranks', ()), 16)}] {text}" if self._drawing.ranks > 1 else text
