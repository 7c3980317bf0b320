"""A run's metrics: what ranks logged, and what --metric finds in their output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from . import reader
from .folder import RunFolder

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
    """A metric's value as it stands in an event: a number, or "NaN", "Infinity", "-Infinity"."""
    return float(value)  # type: ignore[arg-type]  # float() knows these three words itself


def points(folder: RunFolder, attempt: int | None = None) -> list[MetricPoint]:
    """Every metric of a run in the order of its time; of all attempts by default."""
    found: list[MetricPoint] = []
    for event in reader.events(folder, attempt):
        if event.kind == "metric":
            found += _of_event(event)
    patterns = {name: re.compile(pattern) for name, pattern in reader.job(folder).metrics.items()}
    if patterns:
        for number in folder.attempts() if attempt is None else [attempt]:
            for rank in range(len(reader.ranks(folder, number))):
                found += _in_log(folder, rank, number, patterns)
        found.sort(key=lambda point: point.time)
    return found


def _of_event(event: reader.Event) -> list[MetricPoint]:
    try:
        return [
            MetricPoint(event.rank, event.data.get("step"), name, to_number(value), event.time, event.attempt)
            for name, value in event.data["values"].items()
        ]
    except (KeyError, AttributeError, TypeError, ValueError):
        return []  # a line that is JSON and yet not ours


def _in_log(
    folder: RunFolder, rank: int, attempt: int, patterns: dict[str, re.Pattern[str]]
) -> Iterator[MetricPoint]:
    steps = dict.fromkeys(patterns, 0)
    for line in reader.line_times(folder, rank, attempt):
        for name, pattern in patterns.items():
            for match in pattern.finditer(line.text):
                groups = match.groupdict()
                try:
                    value = float(groups.get("value") or match.group(1))
                    step = int(groups["step"]) if groups.get("step") else steps[name]
                except (TypeError, ValueError):
                    continue  # the pattern fits text that is no number
                yield MetricPoint(rank, step, name, value, line.time, attempt)
                steps[name] = step + 1
