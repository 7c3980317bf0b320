"""One Chrome trace of all ranks, from the traces that torch's profiler has written on each rank.

The times of a rank are by its host's clock. `offset_s` brings them to the driver's. The result begins at 0.
Each rank has processes of its own, and a row with its training steps. https://ui.perfetto.dev opens the file.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["RankTrace", "merged"]

_PROCESSES = 1000
"""Process numbers of a rank, from its number times this."""
_ABOUT = ("process_name", "process_sort_index", "process_labels")


@dataclass(frozen=True)
class RankTrace:
    """The trace of one rank, as its profiler has written it."""

    rank: int
    host: str
    packed: bytes
    """The JSON, packed by gzip."""
    ends: Sequence[int]
    """Ends of steps in nanoseconds by the rank's clock. The first one is the begin of the trace."""
    offset_s: float
    """The driver's clock minus the rank's."""


def merged(traces: Sequence[RankTrace]) -> dict[str, Any]:
    """Return one trace. Raises ValueError, KeyError, TypeError or OSError if a rank's file is damaged."""
    # Microseconds since 1970 would have too few digits behind the point.
    origin = min((trace.ends[0] + round(1e9 * trace.offset_s) for trace in traces), default=0)
    events = [event for trace in traces for event in _of_rank(trace, origin)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _of_rank(trace: RankTrace, origin: int) -> Iterable[dict[str, Any]]:
    """Yield the events of a rank, with times in microseconds after `origin` by the driver's clock."""
    data = json.loads(gzip.decompress(trace.packed))
    origin -= round(1e9 * trace.offset_s)  # by the rank's clock
    shift_us = (int(data.get("baseTimeNanoseconds", 0)) - origin) / 1000
    numbers: dict[int, int] = {}
    first = trace.rank * _PROCESSES
    found = []
    for event in data["traceEvents"]:
        pid = event.get("pid")
        if not isinstance(pid, int) or event.get("name") in _ABOUT:
            continue  # the profiler's own marks, and names that are the same on all ranks
        event = {**event, "pid": numbers.setdefault(pid, first + len(numbers))}
        if event["ph"] == "M":
            event.pop("ts", None)
        else:
            event["ts"] = round(float(event["ts"]) + shift_us, 3)
        if "id" in event:  # the two ends of an arrow
            event["id"] = f"{trace.rank}.{event['id']}"
        found.append(event)
    names = _names(data["traceEvents"])
    for pid, number in numbers.items():
        label = f"rank {trace.rank} on {trace.host}" + ("" if number == first else f": {names.get(pid, pid)}")
        yield _about(number, "process_name", name=label)
        yield _about(number, "process_sort_index", sort_index=number)
    yield from _steps(trace, first, origin)
    yield from found


def _steps(trace: RankTrace, pid: int, origin: int) -> Iterable[dict[str, Any]]:
    """Yield a row with the training steps, above the rows of threads."""
    yield _about(pid, "thread_name", name="training steps")
    yield _about(pid, "thread_sort_index", sort_index=-1)
    for number, (begin, end) in enumerate(zip(trace.ends, trace.ends[1:], strict=False)):
        times = {"ts": (begin - origin) / 1000, "dur": (end - begin) / 1000}
        yield {"ph": "X", "cat": "step", "name": f"step {number}", "pid": pid, "tid": 0, **times}


def _about(pid: int, event: str, /, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": pid, "tid": 0, "args": args}


def _names(events: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Return what the processes of a trace are: of a GPU, its label."""
    return {
        event["pid"]: str(event["args"]["labels"])
        for event in events
        if event.get("name") == "process_labels" and isinstance(event.get("pid"), int)
    }
