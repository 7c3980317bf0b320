"""What a run's summary draws of its metrics: from the supervisor's digest, and what it does not cover yet."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..errors import DistError
from ..folder import RunFolder
from ..job import rank_count
from ..record import reader
from ..record.metrics.digest import Band, Digest, Metric
from ..record.metrics.digest_file import DigestFile
from ..text.safe import one_line
from ..text.svg import Curves, Series

__all__ = ["SummaryCurves", "curves"]

_EVERY_S = 0.25
_MOST_NAMES = 500


class SummaryCurves:
    """For one run that is followed, and whose metrics are found in what its ranks print: of these there is no
    digest. They are read while it goes on, so that the summary at its end has little left to read."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._wanted = bool(reader.job(folder).metrics)
        self._next = 0.0

    def take(self, attempt: int, now: float) -> None:
        """Reads what is new, from time to time."""
        if not self._wanted or now < self._next:
            return
        self._next = now + _EVERY_S
        # Here and not above: a run without metrics does not wait for numpy.
        from ..queries.metrics import curves as metric_curves

        try:
            metric_curves.refresh(self._folder, attempt)
        except DistError:
            return  # it is being removed


def curves(folder: RunFolder) -> dict[str, Curves]:
    """Every metric by rank, of all attempts, in the order in which the metrics first came. Of a long curve
    the lowest and highest points of its stretches are given, and its last one."""
    job = reader.job(folder)
    ranks = rank_count(job, reader.status(folder))
    found: dict[str, list[Metric]] = {}
    first: dict[str, tuple[int, float]] = {}
    for attempt in folder.attempts():
        digest = (
            _found_in_logs(folder, attempt, ranks) if job.metrics else _of_attempt(folder, attempt, ranks)
        )
        for name, metric in digest.metrics.items():
            shown = one_line(name, 60)
            found.setdefault(shown, []).append(metric)
            first[shown] = min(first.get(shown, (attempt, math.inf)), (attempt, metric.first))
    return {name: _joined(found[name]) for name in sorted(found, key=lambda name: first[name])}


def _of_attempt(folder: RunFolder, attempt: int, ranks: int) -> Digest:
    kept = DigestFile(folder, attempt, ranks)
    kept.load()
    kept.read()
    return kept.digest


def _found_in_logs(folder: RunFolder, attempt: int, ranks: int) -> Digest:
    from ..queries.metrics import curves as metric_curves

    digest = Digest(ranks, _MOST_NAMES)
    for name, by_rank in metric_curves.refresh(folder, attempt).items():
        for rank, (steps, values, times) in by_rank.items():
            digest.add(
                rank, name, list(steps), list(values), [t if math.isfinite(t) else math.inf for t in times]
            )
    return digest


def _joined(metrics: list[Metric]) -> Curves:
    """One metric of several attempts, one after the other."""
    ranks = sorted({rank for metric in metrics for rank in metric.last})
    series = []
    for rank in ranks:
        points = [point for metric in metrics for point in _points(metric, rank)]
        series.append(Series(rank, [x for x, _ in points], [y for _, y in points]))
    band = Band()
    for metric in metrics:
        if metric.band is not None:
            band.absorb(metric.band)
    return Curves(series, band.points())


def _points(metric: Metric, rank: int) -> Iterator[tuple[float, float]]:
    if rank not in metric.last:
        return
    points = metric.lines[rank].points() if rank in metric.lines else []
    yield from points
    last = metric.last[rank][1:]
    if not points or points[-1] != last:
        yield last
