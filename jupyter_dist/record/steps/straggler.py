"""The search for a rank that the other ranks wait for. Pure: it sees only the times of a typical step.

In each collective, the rank that arrives last waits least. So the culprit is the rank that waits least, and
the gap is how much longer its median victim waits. If nobody measures the collectives, their time is hidden
in the rest of the step. Then the culprit is the rank whose step without the wait for data is shortest.

The rules are those of TraceML (https://github.com/traceopt-ai/traceml), and a few more:

- A gap of less than 10 % of the step is nothing. 20 % is critical, from 20 steps on.
- A part of the step is the cause only if it explains 80 % of the gap.
- A gap that has cost less than a second in all is not worth a line.
- A gap must be clear: it is larger than the range in which the waits of a rank vary from second to second.
- If a signal is missing, the verdict is "incomplete", never "balanced".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Cause", "Finding", "Pace", "Verdict", "judge"]

_WARNING, _CRITICAL = 0.10, 0.20
_EXPLAINS = 0.80
_STEPS, _CRITICAL_STEPS = 2, 20
_LEAST_LOSS_S = 1.0
_CLEAR = 0.05
"""The part of a step that must remain of a gap without the variation of the waits."""
_IN_STEP = 0.10
"""The difference of their steps up to which ranks are taken to go in step."""


class Finding(enum.Enum):
    """What the times of all ranks say."""

    STRAGGLER = "straggler"
    BALANCED = "balanced"
    INCOMPLETE = "incomplete"
    """No rank stands out, as far as the times say that were recorded."""


class Cause(enum.Enum):
    """The part of a step in which a straggler spends its time."""

    DATA = "data"
    COMPUTE = "compute"


@dataclass(frozen=True)
class Pace:
    """A typical step of one rank, in seconds. None: the rank did not record it."""

    steps: int
    """The number of steps so far."""
    step_s: float
    data_s: float | None
    wait_s: float | None
    gpus: bool = False
    spread_s: float = 0.0
    """How far `wait_s`, or else `step_s` without `data_s`, varies: half of its interquartile range."""

    @property
    def rest_s(self) -> float:
        return self.step_s - (self.data_s or 0.0) - (self.wait_s or 0.0)


@dataclass(frozen=True)
class Verdict:
    """A finding, with the facts about a straggler."""

    finding: Finding
    missing: tuple[str, ...] = ()
    """The signals that at least one rank lacks, of `steps`, `data`, `collectives`."""
    rank: int = -1
    """The straggler."""
    critical: bool = False
    cause: Cause | None = None
    own_s: float = 0.0
    """What the straggler needs for a step, without waits in collectives."""
    others_s: float = 0.0
    """What its median victim needs."""
    share: float = 0.0
    """The part of a step in which the median victim waits for the straggler."""
    world_size: int = 0

    @property
    def sentence(self) -> str:
        """Return what the user reads about a straggler. Empty if there is none."""
        if self.finding is not Finding.STRAGGLER:
            return ""
        rank, share = f"rank {self.rank}", f"{self.share:.0%}".replace("%", " %")
        if self.world_size == 2:
            victims = f"Rank {1 - self.rank} needs {{}} and waits for {rank} for {share} of each step."
        else:
            victims = f"The other ranks need {{}} and wait for {rank} for {share} of each step."
        own, others = _seconds(self.own_s, self.others_s)
        where = {
            Cause.DATA: " Its data loader takes the time.",
            Cause.COMPUTE: " Its computation takes the time.",
            None: "",
        }
        return f"Rank {self.rank} is slow: it needs {own} a step. {victims.format(others)}{where[self.cause]}"


def judge(paces: Sequence[Pace | None]) -> Verdict:
    """Return the verdict on all ranks of a run. `paces`: one for each rank, None for a rank without steps."""
    known = [pace for pace in paces if pace is not None and pace.steps >= _STEPS]
    if len(known) < len(paces) or len(known) < 2:
        return Verdict(Finding.INCOMPLETE, ("steps",))
    data_known = all(pace.data_s is not None for pace in known)
    waits_known = all(pace.wait_s is not None for pace in known)
    missing = (*(() if data_known else ("data",)), *(() if waits_known else ("collectives",)))
    found = _by_waits(known, data_known) if waits_known else None
    if found is None and data_known and _go_in_step(known):
        found = _by_data(known)
    return found or Verdict(Finding.INCOMPLETE if missing else Finding.BALANCED, missing)


def _by_waits(paces: list[Pace], data_known: bool) -> Verdict | None:
    """Return the verdict if ranks wait in collectives that were measured."""
    waits = [pace.wait_s or 0.0 for pace in paces]
    rank = waits.index(min(waits))
    victims = [pace for number, pace in enumerate(paces) if number != rank]
    wait_s = median(pace.wait_s or 0.0 for pace in victims)
    gap_s = wait_s - waits[rank]
    cause = None
    if data_known:  # otherwise the rest of the step may contain a wait for data
        if _more_data(paces[rank], victims) >= _EXPLAINS * gap_s:
            cause = Cause.DATA
        elif paces[rank].rest_s - median(pace.rest_s for pace in victims) >= _EXPLAINS * gap_s:
            cause = Cause.COMPUTE
    own_s = paces[rank].step_s - waits[rank]
    others_s = median(pace.step_s - (pace.wait_s or 0.0) for pace in victims)
    return _straggler(paces, rank, gap_s, cause, own_s, others_s)


def _by_data(paces: list[Pace]) -> Verdict | None:
    """Return the verdict if only the waits for data were measured, and explain the gap."""
    visible = [pace.step_s - (pace.data_s or 0.0) for pace in paces]
    rank = visible.index(min(visible))
    victims = [pace for number, pace in enumerate(paces) if number != rank]
    gap_s = median(pace.step_s - (pace.data_s or 0.0) for pace in victims) - visible[rank]
    if _more_data(paces[rank], victims) < _EXPLAINS * gap_s:
        return None
    own_s = paces[rank].step_s
    return _straggler(paces, rank, gap_s, Cause.DATA, own_s, own_s - gap_s)


def _go_in_step(paces: list[Pace]) -> bool:
    """Return whether the ranks wait for each other, as far as the length of their steps says.

    On GPUs, Python code runs ahead of the computation, and a wait for data may cost nothing.
    """
    step_s = median(pace.step_s for pace in paces)
    return all(abs(pace.step_s - step_s) <= _IN_STEP * step_s and not pace.gpus for pace in paces)


def _more_data(culprit: Pace, victims: list[Pace]) -> float:
    return (culprit.data_s or 0.0) - median(pace.data_s or 0.0 for pace in victims)


def _straggler(
    paces: list[Pace], rank: int, gap_s: float, cause: Cause | None, own_s: float, others_s: float
) -> Verdict | None:
    step_s = median(pace.step_s for pace in paces)
    steps = min(pace.steps for pace in paces)
    score = gap_s / step_s if step_s > 0 else 0.0
    if score < _WARNING or gap_s * steps < _LEAST_LOSS_S:
        return None
    victims = [pace.spread_s for number, pace in enumerate(paces) if number != rank]
    if gap_s - paces[rank].spread_s - median(victims) < _CLEAR * step_s:
        return None
    critical = score >= _CRITICAL and steps >= _CRITICAL_STEPS
    share = min(1.0, score)
    return Verdict(Finding.STRAGGLER, (), rank, critical, cause, own_s, max(0.0, others_s), share, len(paces))


def _seconds(first: float, second: float) -> tuple[str, str]:
    """Return two times in one unit."""
    if first >= 0.095:
        return f"{first:.2f} s", f"{second:.2f} s"
    return f"{1000 * first:.2g} ms", f"{1000 * second:.2g} ms"
