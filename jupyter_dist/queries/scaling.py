"""How a run with --scaling scales: the report with prices, as JSON for the views."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from .. import backends
from ..record.scaling import report
from ..record.trials import Trial
from .answers.runs import Scaling, ScalingRow

__all__ = ["scaling_of"]


def scaling_of(trials: Sequence[Trial], trial_job: Mapping[str, Any]) -> Scaling:
    """Return the report on the sizes that have been measured so far.

    `trial_job`: the job of each size as JSON, whose backend may know prices.
    """
    measured = [trial for trial in trials if trial.measured is not None]
    found = report.report([trial.measured for trial in measured if trial.measured is not None])
    ids: list[str | None] = [trial.run_id for trial in measured]
    ids += [None] * (len(found.rows) - len(ids))
    best = found.best
    return {
        "unit": found.unit,
        "rows": [_row(row, id, trial_job) for row, id in zip(found.rows, ids, strict=True)],
        "laws": [{"name": law.name, "serial": law.serial, "error": law.error} for law in found.laws],
        "best": None if best is None else best.name,
    }


def _row(row: report.Row, id: str | None, trial_job: Mapping[str, Any]) -> ScalingRow:
    price = _price(trial_job, row.ranks)
    return {
        "id": id,
        "ranks": row.ranks,
        "throughput": row.throughput,
        "speedup": row.speedup,
        "efficiency": row.efficiency,
        "low": row.low,
        "high": row.high,
        "limit": row.limit,
        "why": row.why,
        "projected": row.projected,
        "usd_per_hour": price,
        "usd_per_million": None if price is None else price / 3600 / row.throughput * 1e6,
    }


def _price(trial_job: Mapping[str, Any], ranks: int) -> float | None:
    with contextlib.suppress(Exception):  # a list price only adds a column
        known = backends.extensions_of(backends.declared(str(trial_job["backend"]))).price
        return None if known is None else known(ranks, trial_job["options"])
    return None
