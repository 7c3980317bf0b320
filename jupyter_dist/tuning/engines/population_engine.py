"""Engine of --scheduler pbt on every backend: population based training, as in Ray Tune with `synch=True`.

A population trains in segments of `perturbation_interval` values, and each segment is a trial. When all
trials of a segment have ended, each of them continues as a trial of the next segment. A weak one continues
from the checkpoint of a strong one, and with that trial's parameters after a perturbation.

All decisions follow from the trials that have ended and from a seed. So a new engine repeats them after a
restart. Ray Tune's own class decides only inside of Tune's controller, which starts and restores the trials
itself. The steps and the defaults here are those of that class.

https://docs.ray.io/en/latest/tune/api/doc/ray.tune.schedulers.PopulationBasedTraining.html
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from ...job import Job
from ...record.trials import FAILED, RUNNING, Source, Trial
from ...search.dimensions import Choice, Dimension, Real, Value
from ...search.spec import Search
from . import Proposal

__all__ = ["PopulationEngine", "draw", "explore", "quantiles"]

_FACTORS = (1.2, 0.8)


class PopulationEngine:
    """Implements `PausingEngine`. The trials of a segment have consecutive numbers."""

    def __init__(self, search: Search, job: Job) -> None:
        assert search.schedule is not None
        self._search, self._schedule = search, search.schedule
        self._interval = self._schedule.own["perturbation_interval"]
        self._seed = job.id if search.seed is None else search.seed
        self._ended: dict[int, Trial] = {}
        self._first, self._segment = 0, self._first_segment(search.population or 0)
        """The newest segment, and the number of its first trial."""
        self._is_over = False

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        if trial.state != RUNNING:
            self.tell(trial)

    def ask(self, number: int) -> Proposal | None:
        self._advance()
        place = number - self._first
        return self._segment[place] if place < len(self._segment) else None

    def pruned_at(self, number: int, reported: Sequence[tuple[int, float]]) -> int | None:
        return None

    def tell(self, trial: Trial) -> None:
        self._ended[trial.number] = trial

    def exhausted(self) -> str | None:
        return "" if self._is_over else None

    def sources(self) -> set[int]:
        self._advance()
        members = dict(enumerate(self._segment, self._first))
        lacking = [one.source for number, one in members.items() if not self._has_checkpoint(number)]
        return {*members, *(one.trial for one in lacking if one is not None)}

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _has_checkpoint(self, number: int) -> bool:
        """Return whether a trial has ended with a checkpoint of its own, so that it needs its source no more.

        If all trials of a segment fail, for example on a full disk, the user still has those of the segment
        before.
        """
        ended = self._ended.get(number)
        return ended is not None and (ended.paused or ended.state != FAILED)

    def _first_segment(self, count: int) -> list[Proposal]:
        chance = self._chance(0)
        draws = [draw(self._search.space, chance) for _ in range(count)]
        return [Proposal(values, until=self._interval) for values in draws]

    def _advance(self) -> None:
        """Begin the next segment if all trials of the newest one have ended."""
        while not self._is_over:
            end = self._first + len(self._segment)
            members = [self._ended.get(number) for number in range(self._first, end)]
            ended = [one for one in members if one is not None]
            if len(ended) < len(members):
                return
            following = self._next_segment(ended)
            self._is_over = not following
            if following:
                self._first, self._segment = end, following

    def _next_segment(self, members: Sequence[Trial]) -> list[Proposal]:
        """Return how each trial of a segment continues. Empty if no trial can.

        A trial that has ended by itself, or was stopped, does not continue. One that has failed is replaced.
        """
        fraction = self._schedule.fractions["quantile_fraction"]
        if not any(one.paused and one.value is not None for one in members):
            return []
        going = [one for one in members if one.paused or (one.state == FAILED and fraction)]
        chance = self._chance(members[-1].number + 1)
        weak, strong = quantiles(going, self._search, fraction)
        return [self._continued(one, weak, strong, chance) for one in going]

    def _continued(
        self, trial: Trial, weak: Sequence[Trial], strong: Sequence[Trial], chance: random.Random
    ) -> Proposal:
        parameters: Mapping[str, Value] = trial.parameters
        donor = trial
        if trial in weak:
            donor = chance.choice(strong)
            resample = self._schedule.fractions["resample_probability"]
            parameters = explore(donor.parameters, self._search.space, resample, chance)
        values = trial.until or 0
        until = min(values + self._interval, self._search.most_values or 0)
        return Proposal(parameters, source=Source(donor.number, values), until=until)

    def _chance(self, first: int) -> random.Random:
        """Return the random numbers of the segment that begins with this trial, the same after a restart."""
        return random.Random(f"{self._seed} {first}")


def draw(space: Mapping[str, Dimension], chance: random.Random) -> dict[str, Value]:
    """Return random values."""
    return {name: _drawn(one, chance) for name, one in space.items()}


def quantiles(trials: Sequence[Trial], search: Search, fraction: float) -> tuple[list[Trial], list[Trial]]:
    """Return the weak and the strong trials. Both are empty if there is nothing to compare.

    A trial without a value is weak. It has failed, or its last value is not finite: its checkpoint has
    diverged, and the trial cannot recover.
    """
    valueless = [one for one in trials if one.value is None]
    sign = 1.0 if search.goal == "max" else -1.0
    ordered = sorted((sign * one.value, one.number) for one in trials if one.value is not None)
    number = min(math.ceil(len(ordered) * fraction), len(ordered) // 2)
    by_number = {one.number: one for one in trials}
    strong = [by_number[name] for _, name in ordered[len(ordered) - number :]]
    if not strong and valueless and fraction:
        strong = [by_number[name] for _, name in ordered[-1:]]
    if not strong:
        return [], []
    return [*(by_number[name] for _, name in ordered[:number]), *valueless], strong


def explore(
    values: Mapping[str, Value], space: Mapping[str, Dimension], resample: float, chance: random.Random
) -> dict[str, Value]:
    """Return perturbed values. `resample`: the probability of a new draw, for each parameter.

    Without a new draw, a number is multiplied by 1.2 or 0.8 and stays in its range. A choice becomes one of
    its neighbours in the list.
    """
    return {
        name: _drawn(one, chance) if chance.random() < resample else _perturbed(values[name], one, chance)
        for name, one in space.items()
    }


def _perturbed(value: Value, one: Dimension, chance: random.Random) -> Value:
    if isinstance(one, Choice):
        at = next(at for at, known in enumerate(one.values) if Choice((known,)).holds(value))
        return one.values[min(max(at + chance.choice((-1, 1)), 0), len(one.values) - 1)]
    assert isinstance(value, int | float)
    wanted = min(max(value * chance.choice(_FACTORS), one.low), one.high)
    if isinstance(one, Real):
        return one.nearest(wanted)
    return one.point(round((wanted - one.low) / one.step))


def _drawn(one: Dimension, chance: random.Random) -> Value:
    if isinstance(one, Choice) or one.step not in (None, 1):
        return one.point(chance.randrange(int(one.size)))
    if isinstance(one, Real):
        return _between(one.low, one.high, one.log, chance)
    return min(math.floor(_between(one.low, one.high + 1, one.log, chance)), one.high)


def _between(low: float, high: float, log: bool, chance: random.Random) -> float:
    if not log:
        return chance.uniform(low, high)
    return min(max(math.exp(chance.uniform(math.log(low), math.log(high))), low), high)
