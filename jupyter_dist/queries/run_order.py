"""Put runs into the order that a list is sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InputError
from .answers import RunSummary

__all__ = ["in_order"]


def in_order(runs: Sequence[RunSummary], sort: str) -> list[RunSummary]:
    """Runs by `created`, `name`, `duration`, `param:NAME` or `metric:NAME`; with a minus the largest first.

    A run that has no such value goes last either way, and equal ones stay as they were. Raises InputError.
    """
    down, by = sort.startswith("-"), sort.removeprefix("-")
    having: list[tuple[Any, RunSummary]] = []
    without: list[tuple[Any, RunSummary]] = []
    for run in runs:
        key = _key(run, by)
        (without if key is None else having).append((key, run))
    having.sort(key=lambda one: _comparable(one[0]), reverse=down)
    return [run for _, run in (*having, *without)]


def _key(run: RunSummary, by: str) -> Any:
    kind, _, name = by.partition(":")
    if kind == "param" and name:
        return run.get("parameters", {}).get(name)
    if kind == "metric" and name:
        return run.get("final", {}).get(name)
    if by == "duration":
        ended = run["ended"] or run["host_time"]
        return None if run["started"] is None else ended - run["started"]
    if by == "created":
        return run["created"]
    if by == "name":
        return run["name"].lower()
    raise InputError(
        f"sort must be created, name, duration, param:NAME or metric:NAME, or one with a minus, got {by!r}"
    )


def _comparable(value: Any) -> tuple[bool, float, str]:
    """Numbers before texts."""
    if isinstance(value, int | float):
        return False, float(value), ""
    return True, 0.0, str(value)
