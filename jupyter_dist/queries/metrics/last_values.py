"""Last values of a run's metrics, over all ranks. Lists, tables and comparisons show them.

They are read from the supervisor's digest and from newer events. So a long run is not read as a whole.
Metrics that `--metric` finds in logs are left out, because they need the whole log.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...folder import RunFolder
from ...job import Status
from ...record.metrics.common_step import LastValues, departed
from ...record.metrics.digest_file import DigestFile
from ..answers.metrics import LastValues as LastValuesAnswer

__all__ = ["FinalMetrics", "answer", "attempts_of", "final_metrics"]

_MOST_ATTEMPTS = 10
"""Of a run with more attempts, only the last ones are read."""
_MOST_NAMES = 500
_READ_S = 0.2
"""The longest reading of one attempt in a call. The rest is read by the next calls."""
_KEPT = 32
_known: OrderedDict[tuple[Path, int], _Attempt] = OrderedDict()
_known_lock = threading.Lock()


class _Attempt:
    """Metrics of one attempt, up to the last `refresh`. Several threads may use it."""

    def __init__(self, folder: RunFolder, attempt: int) -> None:
        self._folder, self._attempt = folder, attempt
        self._lock = threading.Lock()
        self._digest: DigestFile | None = None

    def last(self, status: Status) -> tuple[dict[str, LastValues], dict[str, list[float]], bool]:
        """Return by name the last values, and the lowest and highest value, and whether all was read."""
        current = self._attempt == status.attempt
        with self._lock:
            ranks = max(len(status.ranks) if current else 0, len(self._folder.ranks(self._attempt)))
            if self._digest is None:
                self._digest = DigestFile(self._folder, self._attempt, ranks, _MOST_NAMES)
                self._digest.load()
            self._digest.grow(ranks)
            self._digest.read(_READ_S)
            without = departed(status) if current else ()
            found = {
                name: last
                for name, metric in self._digest.digest.metrics.items()
                if (last := metric.recent.last(without)) is not None
            }
            metrics = self._digest.digest.metrics
            extremes = {name: ends for name in found if (ends := metrics[name].extremes()) is not None}
            return found, extremes, self._digest.complete


@dataclass(frozen=True)
class FinalMetrics:
    """What lists and tables say of a run's metrics, by name."""

    means: dict[str, float]
    """Mean of all ranks at the last step that all have reached."""
    extremes: dict[str, list[float]]
    """Lowest and highest finite value of all ranks and steps."""
    complete: bool
    """Whether all events were read. Otherwise the values may still change."""


def final_metrics(folder: RunFolder, status: Status) -> FinalMetrics:
    """Return the last values and the extremes of a run's metrics.

    The last values are those of the newest attempt that logged a metric. A metric whose values there are not
    finite is left out. Metrics named `system/…` describe machines, not the training, and are left out.
    """
    found: dict[str, LastValues] = {}
    extremes: dict[str, list[float]] = {}
    complete = True
    for attempt in _attempts(folder, status):
        last, ends, all_read = attempt.last(status)
        found = {**last, **found}
        for name, (low, high) in ends.items():
            known = extremes.get(name, [low, high])
            extremes[name] = [min(low, known[0]), max(high, known[1])]
        complete = complete and all_read
    means = {
        name: summary[0]
        for name, last in sorted(found.items())
        if not name.startswith("system/") and (summary := last.summary()) is not None
    }
    return FinalMetrics(means, {name: extremes[name] for name in means if name in extremes}, complete)


def attempts_of(folder: RunFolder, status: Status) -> list[int]:
    """Return the attempts whose metrics are shown, oldest first."""
    return sorted({*folder.attempts(), status.attempt})[-_MOST_ATTEMPTS:]


def answer(last: LastValues | None) -> LastValuesAnswer | None:
    """Return what a chart's title shows. None if there is no finite value."""
    summary = None if last is None else last.summary()
    if last is None or summary is None:
        return None
    mean, low, high = summary
    step = int(last.step) if last.step.is_integer() else last.step
    return {"step": step, "mean": mean, "min": low, "max": high, "ranks": len(last.values), "of": last.of}


def _attempts(folder: RunFolder, status: Status) -> Iterator[_Attempt]:
    for number in attempts_of(folder, status)[::-1]:
        key = (folder.path, number)
        with _known_lock:
            found = _known.pop(key, None) or _Attempt(folder, number)
            _known[key] = found
            while len(_known) > _KEPT:
                _known.popitem(last=False)
        yield found
