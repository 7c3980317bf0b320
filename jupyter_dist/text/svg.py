"""Metric curves as small inline SVG: self-contained, readable on light and dark, of limited size."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .format import exact, number

__all__ = ["Curves", "Line", "Series", "chart", "charts", "lines"]

_WIDTH, _HEIGHT = 300, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 24, 24
"""Margins. The left one is wider for long labels, because the width of their font is unknown."""
_CHARACTER = 6.6
"""Greatest width of a digit: a tenth more than in the widest of the usual fonts, at a size of 10."""
_MAX_LINES = 8
_POINTS = 120
# Middle tones are readable on white and on black if the theme defines no colours.
_COLOURS = ("#1976d2", "#e07b00", "#2e9e4f", "#c4453c", "#8a5cc7", "#9a6b4f", "#cc5fa8", "#7a8a00")


Row = tuple[float, float, float, float]


@dataclass(frozen=True)
class Series:
    """One rank's values of one metric, in the order of the steps. Values may be NaN or infinite."""

    rank: int
    steps: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True)
class Line:
    """A line with a name, in any chart."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    bars: Sequence[tuple[float, float, float]] = ()
    """Vertical ranges: x, least and greatest y."""


@dataclass(frozen=True)
class Curves:
    """One metric of all ranks."""

    series: Sequence[Series]
    band: Sequence[Row] = ()
    """Step, least, mean and greatest over the ranks.

    Set for many ranks, whose series may have only their ends.
    """
    step: float = 0.0
    """Last step that all ranks have reached."""
    last: Mapping[int, float] = field(default_factory=dict)
    """Value of each rank at this step."""


def chart(name: str, series: Sequence[Series], known_band: Sequence[Row] = ()) -> str:
    """Return a chart of one metric over its steps: a line per rank, or for many ranks their mean and range.

    At most 20 kB. Empty if there are fewer than two steps.
    """
    many = len(series) > _MAX_LINES
    drawn = [_thinned(s) for s in series] if not many else []
    band = (known_band or _band(series)) if many else []
    points = [p for line in drawn for p in line] or [(x, y) for x, low, _, high in band for y in (low, high)]
    if len({x for x, _ in points}) < 2:
        return ""
    scale = _Scale(points)
    body = [_axes(scale), _title(name)]
    if many:
        body.append(_band_shape(band, scale))
        body.append(_polyline([(x, mean) for x, _, mean, _ in band], scale, _COLOURS[0]))
        label = f"mean and range of {len(series)} ranks"
    else:
        for i, line in enumerate(drawn):
            body.append(_polyline(line, scale, _COLOURS[i % len(_COLOURS)]))
        label = ""
        body.append(_legend(series) if len(series) > 1 else "")
    if label:
        body.append(_text(_WIDTH - _RIGHT, 14, label, "end", 0.7))
    return _drawing(name, body)


def lines(title: str, shown: Sequence[Line]) -> str:
    """Return a chart of a few named lines. The names are beside the title, which has room for ten letters."""
    points = [point for line in shown for point in line.points]
    points += [(x, y) for line in shown for x, *edges in line.bars for y in edges]
    scale = _Scale([(0.0, 0.0), *points])
    body = [_axes(scale), _title(title)]
    for index, line in enumerate(shown):
        colour = _COLOURS[index % len(_COLOURS)]
        body.append(_polyline(line.points, scale, colour, ' stroke-dasharray="4 3"' if line.dashed else ""))
        body += [_polyline([(x, low), (x, high)], scale, colour) for x, low, high in line.bars]
        if not line.dashed:
            dots = (scale(x, y).split(",") for x, y in line.points)
            body += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in dots]
        x = _LEFT + 60 * (index + 1)
        body.append(f'<text x="{x}" y="14" fill="{colour}" font-weight="600">{_escape(line.name)}</text>')
    return _drawing(title, body)


def _drawing(name: str, body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" fill="none" font-family="sans-serif" font-size="10" '
        f'style="max-width:100%;color:inherit"><title>{_escape(name)}</title>{"".join(body)}</svg>'
    )


class _Scale:
    """Conversion of values to pixels."""

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        self.x0, self.x1 = min(p[0] for p in points), max(p[0] for p in points)
        self.y0, self.y1 = min(p[1] for p in points), max(p[1] for p in points)
        self._high = _share(self.y1, self.y0, self.y1)
        longest = max(len(number(self.y0)), len(number(self.y1)))
        self.left = max(_LEFT, math.ceil(4 + 4 + longest * _CHARACTER))

    def __call__(self, x: float, y: float) -> str:
        px = self.left + _share(x, self.x0, self.x1) * (_WIDTH - self.left - _RIGHT)
        # A constant is drawn in the middle.
        up = _share(y, self.y0, self.y1) if self._high else 0.5
        return f"{px:.1f},{_HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM):.1f}"


def _share(value: float, low: float, high: float) -> float:
    """Return the position of a value between two others, from 0 to 1."""
    # Halves are used because the span of two huge values may overflow a float.
    span = high / 2 - low / 2
    return (value / 2 - low / 2) / span if span > 0 else 0.0


def _thinned(series: Series) -> list[tuple[float, float]]:
    """Return at most about `_POINTS` points, which keep each bucket's least and greatest value."""
    points = _finite(series)
    if len(points) <= _POINTS:
        return points
    size = math.ceil(len(points) / (_POINTS // 2))
    kept = []
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        ends = {bucket.index(min(bucket, key=_y)), bucket.index(max(bucket, key=_y))}
        kept += [bucket[i] for i in sorted(ends)]
    return kept


def _finite(series: Series) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(series.steps, series.values, strict=True) if math.isfinite(y)]


def _y(point: tuple[float, float]) -> float:
    return point[1]


def _band(series: Sequence[Series]) -> list[Row]:
    """Return (step, least, mean, greatest) over the ranks, in at most `_POINTS` / 2 buckets of steps."""
    points = [point for one in series for point in _finite(one)]
    if not points:
        return []
    steps = sorted({x for x, _ in points})
    width = math.ceil(len(steps) / (_POINTS // 2))
    bucket_of = {step: i // width for i, step in enumerate(steps)}
    buckets: dict[int, list[tuple[float, float]]] = {}
    for x, y in points:
        buckets.setdefault(bucket_of[x], []).append((x, y))
    found = []
    for i in sorted(buckets):
        values = [y for _, y in buckets[i]]
        least, greatest = min(values), max(values)
        # Rounding can lift the mean of the greatest floats to infinity.
        mean = min(max(sum(y / len(values) for y in values), least), greatest)
        found.append((steps[i * width], least, mean, greatest))
    return found


def _band_shape(band: Sequence[Row], scale: _Scale) -> str:
    upper = [scale(x, high) for x, _, _, high in band]
    lower = [scale(x, low) for x, low, _, _ in reversed(band)]
    return f'<polygon points="{" ".join(upper + lower)}" fill="{_COLOURS[0]}" fill-opacity="0.25"/>'


def _polyline(points: Sequence[tuple[float, float]], scale: _Scale, colour: str, more: str = "") -> str:
    shape = " ".join(scale(x, y) for x, y in points)
    return f'<polyline points="{shape}" stroke="{colour}" stroke-width="1.5" stroke-linejoin="round"{more}/>'


def _axes(scale: _Scale) -> str:
    left, bottom, right = scale.left, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [
        f'<path d="M{left} {_TOP}V{bottom}H{right}" stroke="currentColor" stroke-opacity="0.4"/>',
        _text(left - 4, bottom, number(scale.y0), "end", 0.8) if scale.y0 < scale.y1 else "",
        _text(
            left - 4,
            _TOP + 8 if scale.y0 < scale.y1 else (_TOP + bottom) // 2 + 4,
            number(scale.y1),
            "end",
            0.8,
        ),
        _text(left, bottom + 14, exact(scale.x0), "start", 0.8),
    ]
    if scale.x0 < scale.x1:
        parts.append(_text(right, bottom + 14, exact(scale.x1), "end", 0.8))
    return "".join(parts)


def _title(name: str) -> str:
    short = name if len(name) <= 28 else name[:27] + "…"
    return _text(_LEFT, 14, short, "start", 1, "600")


def _legend(series: Sequence[Series]) -> str:
    parts = []
    for i, one in enumerate(reversed(series)):
        x = _WIDTH - _RIGHT - 20 * i
        colour = _COLOURS[(len(series) - 1 - i) % len(_COLOURS)]
        parts.append(
            f'<text x="{x}" y="14" text-anchor="end" fill="{colour}" font-weight="600">{one.rank}</text>'
        )
    x = _WIDTH - _RIGHT - 20 * len(series)
    return _text(x, 14, "rank", "end", 0.7) + "".join(parts)


def _text(x: float, y: float, text: str, anchor: str, opacity: float, weight: str = "400") -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="currentColor" fill-opacity="{opacity:g}" '
        f'font-weight="{weight}">{_escape(text)}</text>'
    )


def _escape(text: str) -> str:
    return html.escape("".join(char if char.isprintable() else "·" for char in text[:200]))


def charts(metrics: Mapping[str, Curves], room: int) -> tuple[list[str], int]:
    """Return charts for as many metrics as fit into `room` bytes, and how many were left out."""
    found: list[str] = []
    for name, curves in metrics.items():
        svg = chart(name, curves.series, curves.band)
        if len(svg.encode()) > room:
            break
        room -= len(svg.encode())
        found.append(svg)
    return [svg for svg in found if svg], len(metrics) - len(found)
