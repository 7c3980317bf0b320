"""Resource usage of each rank, as its host measured it: CPU, memory, GPUs, network."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...folder import RunFolder
from .points import MetricPoint, to_number

__all__ = ["PREFIX", "parse_usage", "points"]

PREFIX = "system/"
"""Prefix of the names of these metrics."""


def points(folder: RunFolder) -> list[MetricPoint]:
    """Return the usage of all attempts in the order of time, as metrics without a step.

    Names start with `PREFIX`.
    """
    found: list[MetricPoint] = []
    for attempt in folder.attempts():
        for rank in folder.ranks(attempt):
            try:
                data = folder.rank(attempt, rank).usage.read_bytes()
            except OSError:
                continue
            for when, values in parse_usage(data):
                found += [
                    MetricPoint(rank, None, PREFIX + name, value, when, attempt)
                    for name, value in values.items()
                ]
    found.sort(key=lambda point: point.time)
    return found


def parse_usage(data: bytes) -> Iterator[tuple[float, dict[str, float]]]:
    """Yield the samples in whole lines of a rank's `usage.jsonl`. Other lines are skipped."""
    for line in data.split(b"\n"):
        try:
            sample = json.loads(line)
            values = {str(name): to_number(value) for name, value in sample["values"].items()}
            yield float(sample["time"]), values
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
