"""Logged media as HTML without scripts: for each name some of its steps, all ranks side by side.

If not all steps fit, the first, the last and some between are shown. Text and HTML of ranks are escaped or
stripped, as in result_html.py. The size of the HTML is limited.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...text.fold import ranges
from ...text.safe import clean_lines, preformatted
from ...worker.output.media import form_of
from . import rich_output
from .result_html import rich_html
from .rich_output import ShownOutput

__all__ = ["histogram_html", "item_html", "media_html"]

_MOST_BYTES = 6_000_000
_MOST_STEPS = 6
_MOST_NAMES = 30
_MOST_RANKS = 16
_MOST_TEXT = 4_000
_PRE = "margin:0;white-space:pre-wrap;max-height:16em;overflow:auto"
_WIDTH, _HEIGHT = 240, 80

_Logged = tuple[int, ShownOutput, Path]


def media_html(logged: Sequence[_Logged]) -> str:
    """Return the media as HTML, at most 6 MB."""
    names = list(dict.fromkeys(shown.name for _, shown, _ in logged))
    room = _MOST_BYTES
    parts: list[str] = []
    for name in names[:_MOST_NAMES]:
        mine = [one for one in logged if one[1].name == name]
        steps = sorted({shown.step for _, shown, _ in mine})
        more = f" · {len(steps)} steps" if len(steps) > _MOST_STEPS else ""
        parts.append(f'<div style="margin-top:0.6em"><b>{html.escape(name)}</b>{more}</div>')
        for step in _some(steps):
            row = _row(step, [one for one in mine if one[1].step == step], room)
            room -= len(row)
            parts.append(row)
    if len(names) > _MOST_NAMES:
        parts.append(f"<div>… {len(names) - _MOST_NAMES} more names</div>")
    return f'<div style="font-size:0.9em;line-height:1.4">{"".join(parts) or "nothing but numbers"}</div>'


def _some(steps: Sequence[int]) -> list[int]:
    if len(steps) <= _MOST_STEPS:
        return list(steps)
    last = len(steps) - 1
    return [steps[round(i * last / (_MOST_STEPS - 1))] for i in range(_MOST_STEPS)]


def _row(step: int, logged: Sequence[_Logged], room: int) -> str:
    """Return one row. Ranks that logged the same content share a cell."""
    by_content: dict[str, tuple[list[int], ShownOutput, Path]] = {}
    for rank, shown, path in logged:
        by_content.setdefault(shown.content_key, ([], shown, path))[0].append(rank)
    cells = [
        f'<div style="min-width:8em;max-width:24em"><div style="opacity:0.8">[{ranges(ranks, 24)}]</div>'
        f"{_body(shown, path, room // _MOST_RANKS)}</div>"
        for ranks, shown, path in list(by_content.values())[:_MOST_RANKS]
    ]
    return (
        '<div style="display:flex;gap:1em;margin:0.3em 0;flex-wrap:wrap">'
        f'<div style="opacity:0.8;min-width:5em">step {step}</div>{"".join(cells)}</div>'
    )


def item_html(shown: ShownOutput, media: Path) -> str:
    """Return one logged thing as HTML."""
    return _body(shown, media, _MOST_BYTES)


def _body(shown: ShownOutput, media: Path, room: int) -> str:
    rich = rich_html(shown, media, room)
    if rich:
        return rich
    contents = {part.mime: rich_output.contents(media, part) for part in shown.parts}
    if shown.type == "histogram":
        for mime, data in contents.items():
            if form_of(mime) == "json" and data is not None and (drawn := histogram_html(json.loads(data))):
                return drawn
    text = (contents.get("text/plain") or b"cannot be shown here").decode("utf-8", "replace")
    cut = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
    return preformatted(clean_lines(cut), _PRE)


def histogram_html(told: Any) -> str:
    """Return a histogram as SVG. Empty for any other data."""
    try:
        counts = [max(0.0, float(one)) for one in told["counts"][:200]]
        low, high, number = float(told["low"]), float(told["high"]), int(told["count"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return ""
    most, width = max([*counts, 1.0]), _WIDTH / max(1, len(counts))
    bars = "".join(
        f"M{i * width:.1f} {_HEIGHT}v{-_HEIGHT * one / most:.1f}h{width * 0.9:.1f}V{_HEIGHT}z"
        for i, one in enumerate(counts)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img">'
        f'<path d="{bars}" fill="#3b78c4"/></svg>'
        f'<div style="opacity:0.8">{low:.4g} … {high:.4g}, {number:,} values</div>'
    )
