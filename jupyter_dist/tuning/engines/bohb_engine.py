"""Engine of --scheduler bohb on every backend: synchronous HyperBand, and a model that chooses the values.

New trials fill brackets. The trials on a rung of a bracket are paused after the same number of values. When
all of them have ended, the best ones continue, each as a trial of the next rung from its own checkpoint. The
brackets are those of Ray Tune's HyperBandForBOHB.

A third of the values are random. The others are chosen by Optuna's TPE, which learns from the longest rung
with enough trials, as in BOHB. Ray Tune uses HpBandSter for that, whose last release is from 2018.

All facts are in the trials, so a new engine continues after a restart.

https://docs.ray.io/en/latest/tune/api/doc/ray.tune.schedulers.HyperBandForBOHB.html
https://proceedings.mlr.press/v80/falkner18a.html
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...job import Job
from ...record.trials import RUNNING, Source, Trial
from ...search.dimensions import Value
from ...search.spec import Search
from . import Proposal
from .optuna_space import distributions, from_optuna, to_optuna
from .population_engine import draw

__all__ = ["BohbEngine"]

_RANDOM = 1 / 3
"""Fraction of random values. The original BOHB uses the same."""


@dataclass(frozen=True)
class _Rung:
    """Trials of a bracket that are paused after the same number of values."""

    members: Sequence[Trial]
    best: Sequence[Trial] | None
    """Those that continue on the next rung. None: the rung has not ended."""
    values: int
    until: int
    """The number of values of the next rung."""


class BohbEngine:
    """Implements `PausingEngine`. Creating one imports Optuna, which takes a second."""

    def __init__(self, search: Search, job: Job) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        assert search.schedule is not None
        self._optuna, self._search, self._schedule = optuna, search, search.schedule
        self._seed = job.id if search.seed is None else search.seed
        self._trials: dict[int, Trial] = {}
        """All trials that have begun."""

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        self._trials[trial.number] = trial

    def ask(self, number: int) -> Proposal | None:
        proposal = next(self._proposals(number), None)
        if proposal is not None:
            self._trials[number] = Trial(
                number, "", proposal.parameters, source=proposal.source, until=proposal.until
            )
        return proposal

    def pruned_at(self, number: int, reported: Sequence[tuple[int, float]]) -> int | None:
        return None

    def tell(self, trial: Trial) -> None:
        self._trials[trial.number] = trial

    def exhausted(self) -> str | None:
        is_over = all(one.state != RUNNING for one in self._trials.values()) and self._trials
        return "" if is_over and next(self._proposals(-1), None) is None else None

    def sources(self) -> set[int]:
        children = self._children()
        needed = {number for number, of_it in children.items() if any(one.state == RUNNING for one in of_it)}
        for rung in self._rungs(children):
            waiting = rung.members if rung.best is None else rung.best
            needed |= {one.number for one in waiting if one.number not in children}
        return needed

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _proposals(self, number: int) -> Iterator[Proposal]:
        """Yield what can begin now: the best trials of a rung that has ended, then a new trial."""
        children = self._children()
        for rung in self._rungs(children):
            for one in rung.best or ():
                if one.number not in children:
                    source = Source(one.number, rung.values)
                    yield Proposal(one.parameters, source=source, until=rung.until)
        begun = sum(one.source is None for one in self._trials.values())
        if begun < (self._search.population or 0):
            yield Proposal(self._values(number), until=self._first_rung(begun))

    def _children(self) -> Mapping[int, Sequence[Trial]]:
        """Return the trials that continue from another one, by the number of that one."""
        found: dict[int, list[Trial]] = {}
        for one in self._trials.values():
            if one.source is not None:
                found.setdefault(one.source.trial, []).append(one)
        return found

    def _rungs(self, children: Mapping[int, Sequence[Trial]]) -> Iterator[_Rung]:
        """Yield the rungs that have begun, without the last rung of each bracket."""
        roots = [one for _, one in sorted(self._trials.items()) if one.source is None]
        left = self._search.population or 0
        for rungs in self._schedule.bracket_rungs():
            expected = min(rungs[0][0], left)
            members, roots, left = roots[:expected], roots[expected:], left - expected
            for (_, values), (size, until) in itertools.pairwise(rungs):
                is_over = len(members) >= expected and all(one.state != RUNNING for one in members)
                best = self._best(members, size) if is_over else None
                yield _Rung(members, best, values, until)
                if best is None:
                    break
                expected = len(best)
                members = [child for one in best for child in children.get(one.number, ())]
            if not roots:
                return

    def _best(self, members: Sequence[Trial], size: int) -> list[Trial]:
        """Return the best trials of a rung. One that has ended by itself, or failed, does not continue."""
        sign = -1.0 if self._search.goal == "max" else 1.0
        ordered = sorted(
            (sign * one.value, one.number) for one in members if one.paused and one.value is not None
        )
        return [self._trials[number] for _, number in ordered[:size]]

    def _first_rung(self, begun: int) -> int:
        """Return after how many values the next new trial is paused."""
        for rungs in self._schedule.bracket_rungs():
            if begun < rungs[0][0]:
                return rungs[0][1]
            begun -= rungs[0][0]
        raise AssertionError("there are brackets without end")

    def _values(self, number: int) -> Mapping[str, Value]:
        chance = random.Random(f"{self._seed} {number}")
        least = len(self._search.space) + 1
        known = defaultdict(list)
        for one in self._trials.values():
            if one.value is not None:
                known[one.until].append(one)
        enough = [until for until, found in known.items() if until is not None and len(found) >= least]
        if not enough or chance.random() < _RANDOM:
            return draw(self._search.space, chance)
        space = distributions(self._search)
        study = self._optuna.create_study(
            direction="maximize" if self._search.goal == "max" else "minimize",
            sampler=self._optuna.samplers.TPESampler(n_startup_trials=least, seed=chance.getrandbits(32)),
        )
        for one in known[max(enough)]:
            given = to_optuna(self._search, one.parameters)
            study.add_trial(
                self._optuna.trial.create_trial(params=given, distributions=space, value=one.value)
            )
        return from_optuna(self._search, study.ask(space).params)
