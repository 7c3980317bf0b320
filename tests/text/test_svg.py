"""Curves as SVG, and numbers with their units."""

from __future__ import annotations

import math
import re
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_dist.text import format
from jupyter_dist.text.svg import Series, chart

values = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=400)


@example("", [*[[]] * 6, [sys.float_info.max], [sys.float_info.max], [sys.float_info.max, 0.0]])
@given(st.text(max_size=40), st.lists(values, max_size=12))
def test_any_values_make_a_wellformed_small_chart(name: str, ranks: list[list[float]]) -> None:
    series = [Series(r, [float(i) for i in range(len(v))], v) for r, v in enumerate(ranks)]
    svg = chart(name, series)
    if len({i for one in ranks for i, value in enumerate(one) if math.isfinite(value)}) < 2:
        assert svg == ""
        return
    ElementTree.fromstring(svg)
    assert len(svg.encode()) < 20_000
    shown = re.findall(r'points="([^"]*)"', svg)
    for point in " ".join(shown).split():
        x, y = map(float, point.split(","))
        assert -1 <= x <= 301
        assert -1 <= y <= 171


def test_a_spike_survives_thinning() -> None:
    series = [0.0] * 5000
    series[1234] = 100.0
    svg = chart("loss", [Series(0, [float(i) for i in range(5000)], series)])
    lowest = min(float(p.split(",")[1]) for p in re.findall(r'polyline points="([^"]*)"', svg)[0].split())
    assert lowest == 24.0  # the top of the chart
    assert len(svg) < 5000


def test_many_ranks_are_a_mean_and_a_band() -> None:
    svg = chart("loss", [Series(r, [0.0, 1.0], [r / 100, r / 50]) for r in range(100)])
    assert svg.count("<polyline") == 1
    assert svg.count("<polygon") == 1
    assert "mean and range of 100 ranks" in svg


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1234, "0.12 s"), (12.34, "12.3 s"), (59.97, "1 min 0 s"), (125, "2 min 5 s"), (3780, "1 h 3 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format.duration(seconds) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (812, "812 B"),
        (12_345, "12.3 kB"),
        (999_600, "1 MB"),
        (507e6, "507 MB"),
        (2e15, "2000 TB"),
    ],
)
def test_sizes(nbytes: float, text: str) -> None:
    assert format.size(nbytes) == text


def test_numbers_and_signals() -> None:
    assert [format.number(v) for v in (3.0, 0.12345, math.nan, -math.inf, 1.5e-5)] == [
        "3",
        "0.1235",
        "nan",
        "-inf",
        "1.5e-05",
    ]
    assert (format.signal_name(9), format.signal_name(200)) == ("SIGKILL", "signal 200")
    assert [format.clock(s) for s in (7, 725, 3723)] == ["0:07", "12:05", "1:02:03"]
