"""Curves for a run's summary: from the supervisor's digest file, and from newer events."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator

from ..errors import DistError
from ..folder import RunFolder
from ..record import reader
from ..record.metrics.common_step import departed
from ..record.metrics.digest import Band, Digest, Metric
from ..record.metrics.digest_file import DigestFile
from ..text.safe import one_line
from ..text.svg import Curves, Series

__all__ = ["SummaryCurves", "curves"]

_EVERY_S = 0.25
_MOST_NAMES = 500


class SummaryCurves:
    """Reader of metrics that `--metric` finds in the output of a followed run.

    The digest file does not contain these metrics. Reading them during the run leaves little to read for the
    summary at its end.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._wanted = bool(reader.job(folder).metrics)
        self._next = 0.0

    def take(self, attempt: int, now: float) -> None:
        """Read what is new, at most every 0.25 s."""
        if not self._wanted or now < self._next:
            return
        self._next = now + _EVERY_S
        # Imported here, so that a run without such metrics does not wait for numpy.
        from ..queries.metrics import curves as metric_curves

        try:
            metric_curves.refresh(self._folder, attempt)
        except DistError:
            return  # the run is being removed


def curves(folder: RunFolder) -> dict[str, Curves]:
    """Return every metric by rank, of all attempts, in the order of first appearance.

    Of a long curve, only the lowest and highest points of its stretches and its last point are returned.
    """
    job = reader.job(folder)
    status = reader.status(folder)
    found: dict[str, list[Metric]] = {}
    newest: dict[str, int] = {}
    first: dict[str, tuple[int, float]] = {}
    for attempt in folder.attempts():
        ranks = reader.rank_count_of(folder, status, attempt)
        digest = (
            _found_in_logs(folder, attempt, ranks) if job.metrics else _of_attempt(folder, attempt, ranks)
        )
        for name, metric in digest.metrics.items():
            shown = one_line(name, 60)
            found.setdefault(shown, []).append(metric)
            newest[shown] = attempt
            first[shown] = min(first.get(shown, (attempt, math.inf)), (attempt, metric.first))
    gone = departed(status)
    return {
        name: _joined(found[name], gone if newest[name] == status.attempt else ())
        for name in sorted(found, key=lambda name: first[name])
    }


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


def _joined(metrics: list[Metric], without: Collection[int]) -> Curves:
    """Join one metric of several attempts, one attempt after the other."""
    ranks = sorted({rank for metric in metrics for rank in metric.last})
    series = []
    for rank in ranks:
        points = [point for metric in metrics for point in _points(metric, rank)]
        series.append(Series(rank, [x for x, _ in points], [y for _, y in points]))
    band = Band()
    for metric in metrics:
        if metric.band is not None:
            band.absorb(metric.band)
    last = metrics[-1].recent.last(without)
    found = Curves(series, band.points())
    return found if last is None else dataclasses.replace(found, step=last.step, last=last.values)


def _points(metric: Metric, rank: int) -> Iterator[tuple[float, float]]:
    if rank not in metric.last:
        return
    points = metric.lines[rank].points() if rank in metric.lines else []
    yield from points
    last = metric.last[rank][1:]
    if not points or points[-1] != last:
        yield last
