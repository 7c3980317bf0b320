"""The cost of a training job, as a line for the view: its states, billed seconds, savings, and its price.

Prices are on-demand list prices (instance_types.json). AWS reports spot savings only as seconds.
https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html
"""

from __future__ import annotations

from itertools import pairwise

from ...text.format import duration
from .instance_types import list_price
from .jobs import TrainingJob

__all__ = ["bill", "so_far"]

_STEP_S = 30.0
"""Seconds between updates of the cost so far. Each update writes the run's state."""
_ENDS = ("Completed", "Failed", "Stopped", "MaxRuntimeExceeded", "MaxWaitTimeExceeded")


def so_far(seen: TrainingJob, now: float) -> str:
    """Return the line of a running job. `now`: seconds since the epoch."""
    line = f"job {seen.name} runs on {_machines(seen)}"
    usd = list_price(seen.instance_type)
    if usd is not None:
        most = "up to " if seen.spot else ""
        line += f" at {most}{seen.instances * usd:.2f} USD/h"
        if seen.began is not None:
            spent_s = max(0.0, now - seen.began) // _STEP_S * _STEP_S
            line += f", {most}{seen.instances * usd * spent_s / 3600:.2f} USD so far (list price)"
    return f"{line}; see {seen.page}"


def bill(seen: TrainingJob) -> str:
    """Return the line of a job that has ended or is ending."""
    parts = [f"job {seen.name}"]
    spans = [(name, next_began - began) for (name, began), (_, next_began) in pairwise(seen.phases)]
    told = [f"{name} {duration(took)}" for name, took in spans if name not in _ENDS]
    if seen.phases and seen.phases[-1][0] not in _ENDS:
        told.append(f"{seen.phases[-1][0]} …")
    if told:
        parts.append(", ".join(told))
    parts.append(_billed(seen))
    return f"{parts[0]}: {'; '.join(parts[1:])}; see {seen.page}"


def _billed(seen: TrainingJob) -> str:
    if seen.billed_s is None:
        return f"{_machines(seen)}, what is billed is not known yet" if seen.began else "nothing was billed"
    line = f"billed {seen.billed_s} s of {_machines(seen)}"
    if seen.spot and seen.training_s:
        line += f", {max(0, 100 - round(100 * seen.billed_s / seen.training_s))} % saved by spot instances"
    usd = list_price(seen.instance_type)
    if usd is not None:
        line += f", {seen.instances * usd * seen.billed_s / 3600:.2f} USD (list price)"
    return line


def _machines(seen: TrainingJob) -> str:
    return f"{seen.instances} × {seen.instance_type or 'instances'}"
