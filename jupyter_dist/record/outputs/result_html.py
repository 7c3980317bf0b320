"""The results of a run as HTML: numbers and texts in a table by rank, data frames and pictures as they are.

The HTML is built from what the ranks wrote at their end, and nothing is unpickled. Output of ranks is
untrusted: texts are escaped, and HTML keeps only harmless elements. The size of the HTML is limited.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...text.fold import ranges
from ...text.result_table import result_table
from ...text.safe import clean_lines, preformatted
from ...text.safe_html import safe_html
from . import rich_output
from .result_outlines import Outline
from .rich_output import Part, ShownOutput

__all__ = ["KnownResult", "results_html", "rich_html"]

_MOST_BYTES = 4_000_000
_MOST_PICTURE = 1_000_000
_MOST_TEXT = 2_000
_MOST_KINDS = 64
_PRE = "margin:0;white-space:pre-wrap;max-height:20em;overflow:auto"


class KnownResult(NamedTuple):
    """Known facts of one rank's result. `missing` is the reason if there is no result."""

    repr: str
    missing: str
    outline: Outline | None
    shown: ShownOutput | None
    media: Path


def results_html(told: Sequence[KnownResult]) -> str:
    """Return the results by rank as HTML, at most 4 MB."""
    rows = {
        rank: one.outline.cells
        for rank, one in enumerate(told)
        if one.outline is not None and one.outline.cells and not one.missing
    }
    parts = [result_table(rows)]
    room = _MOST_BYTES
    others = _grouped({rank: one for rank, one in enumerate(told) if rank not in rows})
    for ranks, one in others[:_MOST_KINDS]:
        body = _body(one, room)
        room -= len(body)
        parts.append(
            '<div style="display:flex;gap:0.8em;margin:0.4em 0;align-items:flex-start">'
            f'<div style="opacity:0.8">[{ranges(ranks, 24)}]</div><div style="min-width:0">{body}</div></div>'
        )
    if len(others) > _MOST_KINDS:
        parts.append(f"<div>… {len(others) - _MOST_KINDS} more different results</div>")
    return f'<div style="font-size:0.9em;line-height:1.4">{"".join(parts)}</div>'


def _grouped(told: Mapping[int, KnownResult]) -> list[tuple[list[int], KnownResult]]:
    """Group equal results. If a result has rich output, that output is compared, otherwise the repr."""
    found: dict[object, tuple[list[int], KnownResult]] = {}
    for rank, one in told.items():
        key = (one.missing, one.outline, one.shown.content_key if one.shown else one.repr)
        found.setdefault(key, ([], one))[0].append(rank)
    return list(found.values())


def _body(one: KnownResult, room: int) -> str:
    if one.missing:
        return f'<span style="opacity:0.8">{html.escape(one.missing)}</span>'
    parts = []
    array = one.outline.array if one.outline is not None else None
    if array is not None:
        parts.append(f"<div>{html.escape(str(array))}</div>")
    rich = "" if one.shown is None else rich_html(one.shown, one.media, room)
    if rich:
        parts.append(rich)
    elif array is None or len(one.repr) <= _MOST_TEXT:
        parts.append(_text(one.repr))
    return "".join(parts)


def _text(text: str) -> str:
    cut = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
    return preformatted(clean_lines(cut), _PRE)


def rich_html(shown: ShownOutput, media: Path, room: int) -> str:
    """Return a table or a picture among the result's types, in at most `room` bytes.

    Empty if there is none.
    """
    parts = {part.mime: part for part in shown.parts}
    if (page := parts.get("text/html")) is not None:
        data = rich_output.contents(media, page)
        text = "" if data is None else safe_html(data.decode("utf-8", "replace"))
        if text.strip() and len(text) <= room:
            return f'<div style="max-height:30em;overflow:auto">{text}</div>'
    for mime in rich_output.PICTURES:
        if mime in parts and (picture := _picture(media, parts[mime], room)):
            return picture
    return ""


def _picture(path: Path, part: Part, room: int) -> str:
    if part.bytes > min(_MOST_PICTURE, room * 3 // 4):
        return ""
    data = rich_output.contents(path, part)
    if data is None:
        return ""
    look = "max-width:100%;max-height:20em;min-height:4em;image-rendering:auto"
    return f'<img alt="" src="{rich_output.data_url(part.mime, data)}" style="{look}">'
