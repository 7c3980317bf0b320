"""A run's metrics: those that ranks logged, and those that `--metric` finds in their output."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...folder import RunFolder
from ...text.search import pattern_process
from .. import reader

__all__ = ["MetricPoint", "points", "to_number"]


class MetricPoint(NamedTuple):
    """One value of one metric. `value` may be NaN or infinite; `time` is in seconds since the epoch."""

    rank: int
    step: int | None
    name: str
    value: float
    time: float
    attempt: int


def to_number(value: object) -> float:
    """Convert a metric's value in an event: a number, or "NaN", "Infinity", "-Infinity"."""
    return float(value)  # type: ignore[arg-type]  # float() accepts these three words


def points(folder: RunFolder, attempt: int | None = None) -> list[MetricPoint]:
    """Return every metric of a run in the order of time, by default of all attempts."""
    found: list[MetricPoint] = []
    for event in reader.events(folder, attempt):
        if event.kind == "metric":
            found += _of_event(event)
    patterns = reader.job(folder).metrics
    if patterns:
        try:
            found += _in_logs(folder, folder.attempts() if attempt is None else [attempt], patterns)
        except (TimeoutError, OSError) as error:
            warnings.warn(f"--metric {', '.join(patterns)}: {error}", stacklevel=2)
        found.sort(key=lambda point: point.time)
    return found


def _of_event(event: reader.Event) -> list[MetricPoint]:
    try:
        return [
            MetricPoint(event.rank, event.data.get("step"), name, to_number(value), event.time, event.attempt)
            for name, value in event.data["values"].items()
        ]
    except (KeyError, AttributeError, TypeError, ValueError):
        return []  # the line is JSON, but not a metric that jupyter-dist wrote


def _in_logs(
    folder: RunFolder, attempts: Sequence[int], patterns: Mapping[str, str]
) -> Iterator[MetricPoint]:
    lines = (
        ((rank, attempt, line.time), line.text)
        for attempt in attempts
        for rank in range(len(reader.ranks(folder, attempt)))
        for line in reader.line_times(folder, rank, attempt)
    )
    steps: dict[tuple[int, int, str], int] = {}
    for (rank, attempt, when), name, number, at in pattern_process.values(lines, patterns):
        own = (rank, attempt, name)
        try:
            value, step = float(number), int(at) if at else steps.get(own, 0)
        except ValueError:
            continue  # the pattern matches text that is not a number
        yield MetricPoint(rank, step, name, value, when, attempt)
        steps[own] = step + 1
