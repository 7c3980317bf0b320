"""Sums of the step times that ranks record (worker/steps/), by rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from .straggler import Pace, Verdict, judge

__all__ = ["RankSteps", "RunSteps", "StepTimes"]

_MOST_WINDOWS = 128
_LARGEST = 1e15


@dataclass(frozen=True)
class StepTimes:
    """Times of some steps of one rank, in seconds. None: the rank did not record it."""

    steps: int
    wall_s: float
    data_s: float | None
    """Waiting for data."""
    wait_s: float | None
    """Waiting in collectives."""
    samples: int | None
    gc: int
    gc_s: float
    fast_s: float | None = None
    """A fast step: nine of ten are slower."""
    slow_s: float | None = None
    """A slow step: nine of ten are faster."""

    @property
    def rest_s(self) -> float:
        """The rest of the time: computation, and what nobody has measured."""
        return max(0.0, self.wall_s - (self.data_s or 0.0) - (self.wait_s or 0.0))

    def __add__(self, other: StepTimes) -> StepTimes:
        return StepTimes(
            self.steps + other.steps,
            self.wall_s + other.wall_s,
            _sum(self.data_s, other.data_s),
            _sum(self.wait_s, other.wait_s),
            None if self.samples is None or other.samples is None else self.samples + other.samples,
            self.gc + other.gc,
            self.gc_s + other.gc_s,
            self._mean(other, self.fast_s, other.fast_s),
            self._mean(other, self.slow_s, other.slow_s),
        )

    def _mean(self, other: StepTimes, own: float | None, theirs: float | None) -> float | None:
        if own is None or theirs is None:
            return None
        return (self.steps * own + other.steps * theirs) / (self.steps + other.steps)


class RankSteps:
    """Step times of one rank so far, in windows of about a second. Long runs have longer windows."""

    def __init__(self) -> None:
        self.by = ""
        self.gpus = False
        self._windows: list[StepTimes] = []
        self._most_steps = 0
        self._pace: Pace | None = None

    def take(self, data: Mapping[str, Any]) -> None:
        """Add the data of an event. Data that jupyter-dist did not write is ignored."""
        steps, wall_s = _number(data.get("steps")), _number(data.get("wall_s"))
        if not steps or wall_s is None:
            return
        by = str(data.get("by"))
        if by != self.by:  # the rank has found a better sign of a step
            self.by = by
            self._windows.clear()
        samples = _number(data.get("samples"))
        self._windows.append(
            StepTimes(
                int(steps),
                wall_s,
                _number(data.get("data_s")),
                _number(data.get("wait_s")),
                None if samples is None else int(samples),
                int(_number(data.get("gc")) or 0),
                _number(data.get("gc_s")) or 0.0,
                _number(data.get("fast_s")),
                _number(data.get("slow_s")),
            )
        )
        if len(self._windows) > _MOST_WINDOWS:
            pairs = zip(self._windows[::2], self._windows[1::2], strict=False)
            odd = self._windows[len(self._windows) & ~1 :]
            self._windows = [*(first + second for first, second in pairs), *odd]
        self.gpus = data.get("gpus") is True
        self._pace = None

    @property
    def total(self) -> StepTimes:
        """The sum of all windows. Raises IndexError if there is none."""
        total = self._windows[0]
        for window in self._windows[1:]:
            total += window
        return total

    @property
    def pace(self) -> Pace | None:
        """The seconds of a typical step: medians over windows, so that one pause does not count."""
        if self._pace is None and self._windows:
            total = self.total
            steps_s = [window.wall_s / window.steps for window in self._windows]
            data_s = [(window.data_s or 0.0) / window.steps for window in self._windows]
            waits_s = [(window.wait_s or 0.0) / window.steps for window in self._windows]
            hidden_s = [step_s - wait_s for step_s, wait_s in zip(steps_s, data_s, strict=True)]
            self._pace = Pace(
                total.steps,
                median(steps_s),
                None if total.data_s is None else median(data_s),
                None if total.wait_s is None else median(waits_s),
                self.gpus,
                _spread(hidden_s if total.wait_s is None else waits_s),
            )
        return self._pace


class RunSteps:
    """Step times of all ranks of an attempt."""

    def __init__(self) -> None:
        self.ranks: dict[int, RankSteps] = {}
        self._verdict: tuple[int, Verdict] | None = None

    def take(self, rank: int, data: Mapping[str, Any]) -> None:
        """Add the data of a rank's event."""
        self.ranks.setdefault(rank, RankSteps()).take(data)
        self._verdict = None

    def verdict(self, world_size: int) -> Verdict:
        """Return what the times say about a rank that the others wait for."""
        if self._verdict is None or self._verdict[0] != world_size:
            paces = [known.pace if (known := self.ranks.get(rank)) else None for rank in range(world_size)]
            self._verdict = world_size, judge(paces)
        return self._verdict[1]

    def totals(self) -> Iterator[tuple[int, StepTimes]]:
        """Yield each rank that has recorded steps, with the sum of its times."""
        for rank, steps in sorted(self.ranks.items()):
            if steps.pace is not None:
                yield rank, steps.total


def _spread(values: list[float]) -> float:
    """Return half of the interquartile range."""
    if len(values) < 2:
        return 0.0
    low, _, high = quantiles(values, method="inclusive")
    return (high - low) / 2


def _sum(first: float | None, second: float | None) -> float | None:
    return second if first is None else first if second is None else first + second


def _number(value: object) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return value if 0 <= value < _LARGEST else None
