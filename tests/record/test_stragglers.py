"""The rule that names a rank for which the others wait: as a table, and on the events of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import queries
from jupyter_dist.queries.snapshot import snapshot
from jupyter_dist.record.steps.step_times import RankSteps, RunSteps
from jupyter_dist.record.steps.straggler import Cause, Finding, Pace, Verdict, judge
from jupyter_dist.showing.run import Run
from tests.rigs.run_maker import RunMaker

FAST = Pace(100, 0.20, 0.01, 0.15)


def pace(data_s: float | None = 0.01, wait_s: float | None = 0.15, steps: int = 100, **more: Any) -> Pace:
    return Pace(steps, **{"step_s": 0.20, **more}, data_s=data_s, wait_s=wait_s)


def test_a_slow_loader_and_slow_computation_are_told_apart() -> None:
    slow = judge([FAST, pace(data_s=0.15, wait_s=0.01), FAST])
    assert (slow.finding, slow.rank, slow.cause, slow.critical) == (Finding.STRAGGLER, 1, Cause.DATA, True)
    assert slow.sentence == (
        "Rank 1 is slow: it needs 0.19 s a step. The other ranks need 0.05 s and wait for rank 1 for 70 % of "
        "each step. Its data loader takes the time."
    )
    computes = judge([pace(wait_s=0.01), FAST])
    assert computes.cause is Cause.COMPUTE
    assert computes.sentence == (
        "Rank 0 is slow: it needs 0.19 s a step. Rank 1 needs 0.05 s and waits for rank 0 for 70 % of each "
        "step. Its computation takes the time."
    )
    both = judge([FAST, pace(data_s=0.08, wait_s=0.01)])
    assert (both.rank, both.cause) == (1, None)
    assert both.sentence.endswith("for 70 % of each step.")


@pytest.mark.parametrize(
    ("gap_s", "steps", "told"),
    [
        (0.0199, 100, "balanced"),
        (0.0201, 100, "warning"),
        (0.0399, 100, "warning"),
        (0.0401, 100, "critical"),
        (0.0401, 20, "balanced"),  # less than a second in all
        (0.15, 19, "warning"),
        (0.15, 20, "critical"),
    ],
)
def test_what_is_small_is_nothing(gap_s: float, steps: int, told: str) -> None:
    fast = pace(steps=steps)
    found = judge([fast, fast, pace(0.01 + gap_s, 0.15 - gap_s, steps)])
    named = "critical" if found.critical else "warning"
    kind = named if found.finding is Finding.STRAGGLER else found.finding.value
    assert kind == told


def test_waits_that_vary_as_much_as_the_gap_are_noise() -> None:
    def noisy(spread_s: float) -> Verdict:
        return judge([pace(spread_s=spread_s), pace(0.05, 0.11, spread_s=spread_s)])

    assert noisy(0.014).rank == 1
    assert noisy(0.016) == Verdict(Finding.BALANCED)


@pytest.mark.parametrize(
    ("paces", "missing"),
    [
        ([FAST, None], ("steps",)),
        ([FAST, pace(steps=1)], ("steps",)),
        ([FAST], ("steps",)),
        ([FAST, pace(wait_s=None)], ("collectives",)),
        ([pace(data_s=None), pace(data_s=None)], ("data",)),
        ([pace(None, None), pace(None, None)], ("data", "collectives")),
    ],
)
def test_what_is_not_measured_is_never_balanced(paces: list[Pace | None], missing: tuple[str, ...]) -> None:
    assert judge(paces) == Verdict(Finding.INCOMPLETE, missing)


def test_a_missing_signal_hides_the_cause_but_not_the_rank() -> None:
    found = judge([pace(data_s=None), pace(data_s=None, wait_s=0.01)])
    assert (found.rank, found.cause) == (1, None)


def test_collectives_that_nobody_measures_hide_in_the_rest() -> None:
    def hidden(data_s: float, **more: Any) -> Pace:
        return pace(data_s, None, **more)

    found = judge([hidden(0.01), hidden(0.15), hidden(0.01)])
    assert (found.rank, found.cause) == (1, Cause.DATA)
    assert found.others_s == pytest.approx(0.06)
    # Ranks that do not wait for each other have steps of their own length. GPUs hide the waits for data.
    assert judge([hidden(0.01), hidden(0.15, step_s=0.34)]).finding is Finding.INCOMPLETE
    assert judge([hidden(0.01, gpus=True), hidden(0.15, gpus=True)]).finding is Finding.INCOMPLETE


def window(steps: int, wall_s: float, data_s: float | None = 0.1, **more: Any) -> dict[str, Any]:
    return {"by": "optimizer", "steps": steps, "wall_s": wall_s, "data_s": data_s, **more}


def test_one_pause_does_not_make_a_straggler_and_long_runs_keep_few_windows() -> None:
    rank = RankSteps()
    rank.take({"by": "log", "steps": 3, "wall_s": 900})
    for number in range(1000):
        rank.take(window(10, 61.0 if number == 500 else 1.0, samples=80, gc=1))
    rank.take({"by": "optimizer", "steps": "many", "wall_s": 1})
    assert rank.total.steps == 10_000
    assert rank.total.wall_s == pytest.approx(1060)
    assert (rank.total.samples, rank.total.gc, rank.total.wait_s) == (80_000, 1000, None)
    assert rank.pace is not None
    assert rank.pace.step_s == pytest.approx(0.1)
    assert rank.pace.wait_s is None
    assert rank.pace.spread_s == pytest.approx(0)


def test_the_view_gets_three_of_many_ranks_and_the_sentence_once(own_folders: Path) -> None:
    made = RunMaker(own_folders, 12)
    for rank in range(12):
        slow = rank == 7
        for _ in range(2):
            data_s, wait_s = (1.6, 0.1) if slow else (0.1, 1.6 - rank / 1000)
            made.event(rank, "steps", **window(10, 2.0, data_s, wait_s=wait_s, samples=80))
    id = made.folder.id
    told = queries.profile(id)
    assert [(row["rank"], row["place"]) for row in told["ranks"]] == [
        *((7, "slowest"), (6, "median"), (0, "fastest"))
    ]
    assert (told["straggler"], told["critical"], told["missing"]) == (7, True, [])
    row = told["ranks"][0]
    assert (row["step_s"], row["data_s"], row["collectives_s"]) == pytest.approx((0.2, 0.16, 0.01))
    (note,) = queries.run(id)["notes"]
    assert note.startswith("Rank 7 is slow: it needs 0.19 s a step. The other ranks need 0.04 s")
    assert snapshot(id, lines=10, points=10, each=10, final=False)["profile"] == told
    frame = Run(made.folder).profile
    assert list(frame.index) == list(range(12))
    assert frame["data_s"].tolist()[7] == pytest.approx(0.16)
    assert frame["samples_per_s"].sum() == pytest.approx(12 * 40)
    assert set(frame["by"]) == {"optimizer"}


def test_a_run_without_steps_has_an_empty_table(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    assert len(Run(made.folder).profile) == 0
    assert queries.profile(made.folder.id)["ranks"] == []
    assert RunSteps().verdict(2).missing == ("steps",)
