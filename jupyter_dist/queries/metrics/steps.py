"""Where the time of training steps goes, for the views: a row for each rank, or for three of many."""

from __future__ import annotations

from typing import Literal

from ...folder import RunFolder
from ...job import rank_count
from ...record import reader
from ...record.steps.step_times import StepTimes
from ...record.steps.straggler import Finding
from ..answers.metrics import StepProfile, StepsOfRank
from ..rank_reports import said

__all__ = ["profile"]

_MOST_ROWS = 8
_Place = Literal["slowest", "median", "fastest"]


def profile(folder: RunFolder) -> StepProfile:
    """Return the mean step of each rank of the current attempt.

    Of more than eight ranks the answer has three: the slowest, the median and the fastest.
    """
    status = reader.status(folder)
    size = rank_count(reader.job(folder), status)
    found = said(folder, status.attempt, size).refresh().steps
    verdict = found.verdict(size)
    rows = list(found.totals())
    places: list[_Place | None] = [None] * len(rows)
    if len(rows) > _MOST_ROWS:
        rows.sort(key=lambda row: _own_s(row[1]))
        rows = [rows[-1], rows[len(rows) // 2], rows[0]]
        places = ["slowest", "median", "fastest"]
    return {
        "attempt": status.attempt,
        "ranks": [_row(rank, total, place) for (rank, total), place in zip(rows, places, strict=True)],
        "straggler": verdict.rank if verdict.finding is Finding.STRAGGLER else None,
        "critical": verdict.critical,
        "missing": list(verdict.missing),
    }


def _own_s(total: StepTimes) -> float:
    """Return what the rank needs for a step, without waits in collectives."""
    return (total.wall_s - (total.wait_s or 0.0)) / total.steps


def _row(rank: int, total: StepTimes, place: _Place | None) -> StepsOfRank:
    known = total.samples is not None and total.wall_s > 0
    return {
        "rank": rank,
        "place": place,
        "steps": total.steps,
        "step_s": total.wall_s / total.steps,
        "data_s": None if total.data_s is None else total.data_s / total.steps,
        "compute_s": total.rest_s / total.steps,
        "collectives_s": None if total.wait_s is None else total.wait_s / total.steps,
        "samples_per_s": (total.samples or 0) / total.wall_s if known else None,
        "gc": total.gc,
        "gc_s": total.gc_s,
    }
