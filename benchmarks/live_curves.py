"""What a page with many live charts receives: 16 ranks log 24 metrics ten times a second."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_dist.queries.metrics import curves
from tests.rigs.run_maker import RunMaker

from ._race import Benchmark, Column, Contender, Measure

__all__ = ["RANKS", "STEPS_PER_S", "benchmark", "log"]

RANKS, _METRICS = 16, 24
STEPS_PER_S = 10
_PAUSE_S = 0.2
"""The view asks again this long after it asked, or as soon as the answer is there."""


def benchmark(quick: bool = False) -> Benchmark:
    steps, seconds = (200, 1.0) if quick else (3000, 10.0)
    return Benchmark(
        name="live-curves",
        title="24 live charts of 16 ranks",
        contenders=[
            Contender("what is new", lambda place: _measured(place, steps, seconds, whole=False), ours=True),
            Contender("everything", lambda place: _measured(place, steps, seconds, whole=True)),
        ],
        columns=[
            Column("bytes", "sent, kB/s", lambda rate: f"{rate / 1e3:,.0f}"),
            Column("answer", "an answer, ms", lambda s: f"{1e3 * s:,.0f}"),
            Column("behind", "behind the log, ms", lambda s: f"{1e3 * s:,.0f}"),
        ],
        headline="bytes",
        rounds=1 if quick else 3,
        warm_up=0,
        packages=["numpy"],
    )


@contextlib.contextmanager
def _measured(place: Path, steps: int, seconds: float, *, whole: bool) -> Iterator[Measure]:
    made = RunMaker(place, RANKS, began=time.time())
    for rank in range(RANKS):
        log(made, rank, range(steps))
    done = steps
    asked: dict[str, Any] = {"points": 2000, "ranks": "all"} if whole else {"points": 720}
    version = curves.curves(made.folder, **asked)["version"]

    def measure() -> dict[str, float]:
        nonlocal done, version
        sent, took, behind = 0, [], []
        began, first = time.perf_counter(), done
        while (now := time.perf_counter()) - began < seconds:
            due = first + int((now - began) * STEPS_PER_S)
            for rank in range(RANKS):
                log(made, rank, range(done, due))
            done = max(done, due)
            answer = curves.curves(made.folder, **asked, since=None if whole else version)
            version = answer["version"]
            text = json.dumps(answer).encode()
            sent += len(text if whole else gzip.compress(text, 3))
            took.append(time.perf_counter() - now)
            behind.append(max(took[-1], _PAUSE_S) + took[-1])
            time.sleep(max(0.0, _PAUSE_S - took[-1]))
        took_s = time.perf_counter() - began
        return {"bytes": sent / took_s, "answer": statistics.median(took), "behind": max(behind)}

    yield measure


def log(made: RunMaker, rank: int, steps: range) -> None:
    """Append these steps of all metrics to a rank's events."""
    lines = []
    for step in steps:
        values = {f"part/metric_{name}": random.random() for name in range(_METRICS)}
        event = {"seq": step, "time": time.time(), "kind": "metric", "step": step, "values": values}
        lines.append(json.dumps(event, separators=(",", ":")) + "\n")
    with made.rank(rank).events.open("a") as file:
        file.write("".join(lines))
