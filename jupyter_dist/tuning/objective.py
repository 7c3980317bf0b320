"""Objective of one trial, read live from what its ranks log.

The series is that of the lowest rank that logs the metric, in the newest attempt. The value is its last one.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence

from ..folder import RunFolder
from ..job import Job
from ..record import reader
from ..record.metrics import points
from ..search.schedulers import VALUES, Condition

__all__ = ["Objective", "counted", "is_reported"]

_PATTERNS_EVERY_S = 1.0
"""Interval for metrics from the log. Each time the whole log is read again."""
_ALL_UP_TO = 128


def is_reported(index: int) -> bool:
    """Return whether trials are compared by the value with that index in a trial's series.

    The first values all count, then every second, every fourth… So of a million logged values about a
    thousand count. The result depends only on the index, because a pruner compares values of the same step.
    """
    return index % (1 << max(0, (index // _ALL_UP_TO).bit_length())) == 0


_places: list[int] = []


def counted(reported: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return each reported value with the number of values that its trial had logged by then."""
    return [(_place(index), value) for index, (_, value) in enumerate(reported)]


def _place(number: int) -> int:
    while len(_places) <= number:
        index = _places[-1] if _places else 0
        while not is_reported(index):
            index += 1
        _places.append(index + 1)
    return _places[number]


class Objective:
    """Follower of one trial. Each `refresh` reads what is new."""

    def __init__(
        self,
        folder: RunFolder,
        job: Job,
        metric: str,
        *,
        before: int = 0,
        most: int | None = None,
        until: int | None = None,
        conditions: Sequence[Condition] = (),
    ) -> None:
        """Store the arguments.

        `before`: number of values of the trials from which this one continues. The other two include them.
        `most`: number of values after which the others do not count. `until`: the same, and the trial is then
        paused. `conditions`: those that end the trial.
        """
        self._folder, self._metric, self._before = folder, metric, before
        self._pauses = until is not None and (most is None or until < most)
        limit = until if self._pauses else most
        self._most = None if limit is None else limit - before
        self._conditions, self._met = conditions, ""
        self._in_log = metric in job.metrics
        self._reads_log = self._in_log or any(one.metric in job.metrics for one in conditions)
        self._looked = 0.0
        self._attempt = -1
        self._offsets: dict[int, int] = {}
        self._series: dict[int, list[tuple[int, float]]] = {}
        self._enough: dict[int, int] = {}
        """After how many values a rank's objective has first met a condition."""
        self.names: set[str] = set()
        """Names of all metrics that the trial logs."""

    @property
    def series(self) -> list[tuple[int, float]]:
        """Return (step, value) in the order in which they were logged, without those that do not count."""
        if not self._series:
            return []
        rank = min(self._series)
        limits = [limit for limit in (self._most, self._enough.get(rank)) if limit is not None]
        return self._series[rank][: min(limits, default=None)]

    @property
    def reached(self) -> str:
        """Return why the trial has done enough. Empty if it has not, or has no value yet."""
        count = len(self.series)
        everything = self._before + count
        self._meet(VALUES, everything)
        if not self._met and count == self._most and not self._awaits_rank_0:
            return f"{everything} values" if self._pauses else f"max_t={everything}"
        return self._met if count else ""

    @property
    def _awaits_rank_0(self) -> bool:
        """Return whether rank 0 may still save the checkpoint of a value that another rank has logged.

        If that rank logs one more value, rank 0 logs none at all.
        """
        rank = min(self._series, default=0)
        return self._pauses and rank > 0 and len(self._series[rank]) <= len(self.series)

    @property
    def paused(self) -> bool:
        """Return whether the trial has logged all its values, and another one may continue from it."""
        return self._pauses and bool(self.reached) and not self._met

    @property
    def reported(self) -> list[tuple[int, float]]:
        return [point for index, point in enumerate(self.series) if is_reported(index)]

    @property
    def compared(self) -> list[tuple[int, float]]:
        """Return the reported values without the one with which the trial has done enough."""
        enough = bool(self.reached) and is_reported(len(self.series) - 1)
        return self.reported[:-1] if enough else self.reported

    measured = None

    def outcome(self) -> tuple[float | None, str | None]:
        """Return the value of a trial that has succeeded, or None and why there is none."""
        if not self.series:
            return None, self._why_none()
        value = self.series[-1][1]
        return (value, None) if math.isfinite(value) else (None, f"its last {self._metric} is {value}")

    def _why_none(self) -> str:
        logged = ", ".join(sorted(self.names)[:8])
        why = f"no rank logged {self._metric!r}. "
        # The values that Ray Tune and Optuna use are those that a function returns.
        why += f"The ranks logged {logged}" if logged else "A returned value is no metric"
        cure = f". Add dist.log({self._metric}=…) to the cell or function"
        return why + cure if self._metric.isidentifier() else why

    def refresh(self, *, final: bool = False) -> None:
        """Read what is new. `final`: the trial has ended, so read everything."""
        attempt = max(self._folder.attempts(), default=0)
        if attempt != self._attempt:
            self._attempt, self._offsets, self._series, self._met = attempt, {}, {}, ""
            self._enough = {}
        for rank in self._folder.ranks(attempt):
            self._read(rank)
        if self._reads_log and (final or time.monotonic() - self._looked > _PATTERNS_EVERY_S):
            self._looked = time.monotonic()
            if self._in_log:
                self._series, self._enough = {}, {}
            for point in points.points(self._folder, attempt):
                self.names.add(point.name)
                self._meet(point.name, point.value)
                if self._in_log and point.name == self._metric:
                    self._take(point.rank, point.step, point.value)

    def _read(self, rank: int) -> None:
        path, offset = self._folder.rank(self._attempt, rank).events, self._offsets.get(rank, 0)
        try:
            if os.stat(path).st_size <= offset:
                return
            with open(path, "rb") as file:
                file.seek(offset)
                data = file.read()
        except OSError:
            return
        whole = data.rfind(b"\n") + 1
        self._offsets[rank] = offset + whole
        for event in reader.parse_events(data[:whole], rank, self._attempt):
            if event.kind != "metric":
                continue
            values = event.data.get("values")
            if not isinstance(values, dict):
                continue
            self.names.update(values)
            for condition in self._conditions:
                if condition.metric in values:
                    self._meet(condition.metric, points.to_number(values[condition.metric]))
            if self._metric in values and not self._in_log:
                step, value = event.data.get("step"), points.to_number(values[self._metric])
                self._take(rank, step if isinstance(step, int) else None, value)

    def _meet(self, metric: str, value: float) -> None:
        for condition in self._conditions:
            if condition.metric == metric and condition.holds(value):
                self._met = self._met or str(condition)

    def _take(self, rank: int, step: int | None, value: float) -> None:
        series = self._series.setdefault(rank, [])
        series.append((len(series) if step is None else step, value))
        if any(one.metric == self._metric and one.holds(value) for one in self._conditions):
            self._enough.setdefault(rank, len(series))
