"""BOHB: its brackets, compared with those of Ray Tune, and trials that are paused and continue."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import pytest

from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.folder import RunFolder
from jupyter_dist.plan.run_plan import make_plan
from jupyter_dist.record import trials
from jupyter_dist.record.trials import RUNNING, SUCCEEDED, Source, Trial
from jupyter_dist.search.dimensions import Real
from jupyter_dist.search.schedulers import read_scheduler
from jupyter_dist.search.spec import Search
from jupyter_dist.start import Origin, start_cell
from jupyter_dist.tuning.engines import Proposal
from jupyter_dist.tuning.engines.bohb_engine import BohbEngine
from tests.tuning.test_engines import JOB
from tests.tuning.test_population import ASKED, LEARNS, history
from tests.tuning.test_tuning import story

pytestmark = pytest.mark.needs("optuna")


@pytest.mark.needs("ray")
@pytest.mark.parametrize(("max_t", "factor"), [(81, 3), (9, 3), (10, 3), (80, 3), (16, 2), (100, 4), (5, 4)])
def test_brackets_are_those_of_ray_tune(max_t: int, factor: int) -> None:
    from ray.tune.schedulers.hb_bohb import HyperBandForBOHB

    theirs = HyperBandForBOHB(max_t=max_t, reduction_factor=factor)
    expected = []
    for s in reversed(range(theirs._s_max_1)):
        if theirs._get_r0(s) == 0:
            continue
        bracket = theirs._create_bracket(s)
        rungs = [(bracket._n, bracket._cumul_r)]
        while bracket._halves:
            bracket.successive_halving("x", 1)
            rungs.append((bracket._n, bracket._cumul_r))
        expected.append(tuple(rungs))
    found = read_scheduler(f"bohb(max_t={max_t},reduction_factor={factor})").bracket_rungs()
    assert list(itertools.islice(found, 2 * len(expected))) == expected * 2


def search(population: int, max_t: int = 9) -> Search:
    return Search(
        {"rate": Real(0.0, 1.0)},
        *("max", "score", 100, 4, "bayesian"),
        scheduler=f"bohb(max_t={max_t})",
        population=population,
        seed=1,
    )


def ended(number: int, asked: Proposal, value: float | None = None) -> Trial:
    found = float(asked.parameters["rate"]) if value is None else value  # type: ignore[arg-type]
    return Trial(
        *(number, f"r-t{number}", asked.parameters, SUCCEEDED, found),
        source=asked.source,
        until=asked.until,
        paused=asked.until != 9,
    )


def test_the_best_of_a_rung_continue_and_others_begin_meanwhile() -> None:
    engine = BohbEngine(search(11), JOB)
    asked = {number: engine.ask(number) for number in range(11)}
    begun = {number: one for number, one in asked.items() if one is not None}
    assert [one.until for one in begun.values()] == [1] * 9 + [3] * 2
    for number in range(8):
        engine.tell(ended(number, begun[number], float(number)))
    assert engine.ask(11) is None, "one trial of the rung still runs"
    engine.tell(ended(8, begun[8], -1.0))
    first = engine.ask(11)
    assert first is not None
    assert (first.source, first.until) == (Source(7, 1), 3)
    assert first.parameters == begun[7].parameters
    assert engine.sources() == {5, 6, 7, 9, 10, 11}, "nothing continues from the other trials of the rung"

    again = BohbEngine(search(11), JOB)
    for number in range(11):
        known = ended(number, begun[number], float(number) if number < 8 else -1.0)
        again.learn(known if number < 9 else Trial(number, "r", known.parameters, RUNNING, until=3))
    again.learn(Trial(11, "r-t11", first.parameters, RUNNING, source=first.source, until=3))
    more = [again.ask(number) for number in (12, 13, 14)]
    assert [one and one.source for one in more] == [Source(6, 1), Source(5, 1), None]
    assert again.exhausted() is None
    for number, one in enumerate((first, *more[:2]), 11):
        assert one is not None
        again.tell(ended(number, one, float(number)))
    assert again.sources() == {9, 10, 13}, "the others have been copied, or do not continue"


def test_all_trials_of_a_search_and_its_end() -> None:
    """A few trials always wait, so that rungs end late."""
    engine, asked, waiting = BohbEngine(search(17), JOB), {}, []
    number = 0
    while engine.exhausted() is None:
        one = engine.ask(number)
        if one is not None:
            asked[number] = one
            waiting.append(number)
            number += 1
        if waiting and (one is None or len(waiting) == 3):
            first = waiting.pop(0)
            engine.tell(ended(first, asked[first]))
    assert engine.exhausted() == ""
    assert number == 23
    assert Counter(one.until for one in asked.values()) == {1: 9, 3: 3 + 5, 9: 1 + 2 + 3}
    for one in asked.values():
        if one.source is not None:
            assert one.parameters == asked[one.source.trial].parameters
    drawn = [float(one.parameters["rate"]) for one in asked.values() if one.source is None]  # type: ignore
    assert len(set(drawn)) == 17
    assert max(drawn[9:]) > 0.8, "the model has learned that larger is better"


def test_paused_trials_continue_from_their_own_checkpoints() -> None:
    asked = {**ASKED, "np": 1, "max_jobs": 9, "scheduler": "bohb(max_t=9,reduction_factor=3)"}
    run = start_cell(LEARNS, {}, make_plan(asked), Origin("In[1]", Path.cwd()))
    wait_for_end(run)
    assert run.state == "succeeded", story(run)
    found = trials.read(run.folder).trials
    assert [trial.before for trial in found] == [0] * 9 + [1] * 3 + [3], story(run)
    by_value = sorted(found[:9], key=lambda trial: trial.value or math.inf)
    assert [trial.source and trial.source.trial for trial in found[9:12]] == [
        trial.number for trial in by_value[:3]
    ]
    last = found[12]
    assert history(run, last.number) == [last.parameters["rate"]] * 9
    assert run.best.id == last.run_id
    for trial in found[:12]:
        place = RunFolder(run.folder.path.parent / trial.run_id)
        assert not place.checkpoints.exists(), "nothing continues from it any more"
