"""What one number of ranks has measured, from the step times of its ranks. It is JSON in the trial ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from ..steps.step_times import RunSteps, StepTimes
from ..steps.straggler import Finding

__all__ = ["Measurement", "measure"]


@dataclass(frozen=True)
class Measurement:
    """One number of ranks. The seconds are those of a rank's mean step. None: it was not recorded."""

    ranks: int
    steps: int
    """The recorded steps of a rank."""
    steps_per_s: float
    """The steps of all ranks together."""
    samples_per_s: float | None
    """The samples of all ranks together."""
    step_s: float
    data_s: float | None
    compute_s: float
    """The rest of the step."""
    collectives_s: float | None
    fast_s: float
    """A fast step: nine of ten are slower."""
    slow_s: float
    straggler: int | None = None
    """The rank that the others wait for."""
    cause: str | None = None
    """What the straggler does: `data` or `compute`."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Return the measurement. Raises TypeError or KeyError if jupyter-dist did not write the data."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


def measure(steps: RunSteps, ranks: int) -> Measurement | None:
    """Return what a run has measured. None if no rank has recorded a step.

    A rank without steps counts like the mean of the others: often only rank 0 logs.
    """
    totals = [total for _, total in steps.totals() if total.wall_s > 0]
    if not totals:
        return None
    samples = [total.samples / total.wall_s for total in totals if total.samples is not None]
    verdict = steps.verdict(ranks)
    named = verdict.finding is Finding.STRAGGLER
    step_s = fmean(total.wall_s / total.steps for total in totals)
    return Measurement(
        ranks=ranks,
        steps=round(fmean(total.steps for total in totals)),
        steps_per_s=ranks * fmean(total.steps / total.wall_s for total in totals),
        samples_per_s=ranks * fmean(samples) if len(samples) == len(totals) else None,
        step_s=step_s,
        data_s=_mean(totals, lambda total: total.data_s),
        compute_s=fmean(total.rest_s / total.steps for total in totals),
        collectives_s=_mean(totals, lambda total: total.wait_s),
        fast_s=median(step_s if total.fast_s is None else total.fast_s for total in totals),
        slow_s=median(step_s if total.slow_s is None else total.slow_s for total in totals),
        straggler=verdict.rank if named else None,
        cause=verdict.cause.value if named and verdict.cause is not None else None,
    )


def _mean(totals: list[StepTimes], part: Callable[[StepTimes], float | None]) -> float | None:
    """Return the mean seconds of a part of the step. None if a rank did not record it."""
    found = [None if (seconds := part(total)) is None else seconds / total.steps for total in totals]
    return None if any(one is None for one in found) else fmean(one for one in found if one is not None)
