"""Last values of metrics: over all ranks, at one step, the same in lists and in charts."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jupyter_dist import queries
from jupyter_dist.job import State
from jupyter_dist.record.metrics.common_step import RecentPoints
from jupyter_dist.record.metrics.digest_file import DigestFile
from jupyter_dist.showing import summary
from tests.rigs.run_maker import BEGAN, RunMaker

Last = dict[str, Any]


def log(made: RunMaker, rank: int, values: dict[str, float], steps: range) -> None:
    """Append one line per step. Each value grows by its step."""
    lines = [
        {
            "seq": step,
            "time": BEGAN + step,
            "kind": "metric",
            "step": step,
            "values": {name: value + step for name, value in values.items()},
        }
        for step in steps
    ]
    with made.rank(rank).events.open("ab") as file:
        file.write(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))


def shown(made: RunMaker) -> dict[str, Last]:
    """Return what charts show above their curves, after a check that lists and tables show the same."""
    answer = queries.curves(made.folder.id)
    found = {curve["name"]: curve["last"] for curve in answer["curves"] if curve["last"]}
    means = {name: last["mean"] for name, last in found.items() if not name.startswith("system/")}
    assert queries.run(made.folder.id)["final"] == means
    assert queries.runs()["runs"][0]["final"] == means
    return found  # type: ignore[return-value]


def test_all_64_ranks_and_all_metrics_count(own_folders: Path) -> None:
    made = RunMaker(own_folders, 64)
    for rank in range(64):
        log(made, rank, {"val": rank}, range(1))
        log(made, rank, {"loss": rank if rank % 4 else 100.0}, range(70))
        log(made, rank, {"system/cpu": 5}, range(1))
    found = shown(made)
    total = sum(rank if rank % 4 else 100 for rank in range(64))
    assert found["loss"] == pytest.approx(
        {"step": 69, "mean": 69 + total / 64, "min": 70, "max": 169, "ranks": 64, "of": 64}
    )
    assert found["val"] == {"step": 0, "mean": 31.5, "min": 0, "max": 63, "ranks": 64, "of": 64}


def test_the_step_is_one_that_all_ranks_have_reached(own_folders: Path) -> None:
    made = RunMaker(own_folders, 3)
    for rank in range(3):
        log(made, rank, {"loss": rank}, range(1500 if rank == 0 else 1000))
    expected = {"step": 999, "mean": 1000, "min": 999, "max": 1001, "ranks": 3, "of": 3}
    assert shown(made) == {"loss": expected}
    # The summary in a saved notebook.
    assert summary.gather(made.folder).metrics == [("loss", "999", "1000", "999 – 1001", "0-2")]
    (curve,) = queries.curves(made.folder.id)["curves"]
    assert [rank["last"] for rank in curve["ranks"]] == [999, 1000, 1001]

    # The digest that the supervisor leaves gives the same values.
    kept = DigestFile(made.folder, 0, 3)
    kept.read()
    kept.store()
    again = DigestFile(made.folder, 0, 3)
    assert again.load()
    last = again.digest.metrics["loss"].recent.last()
    assert last is not None
    assert (last.step, last.summary()) == (999, (1000, 999, 1001))

    # A rank that has died does not hold back the others, unless all of them fail.
    made.set_rank(2, state=State.LOST)
    log(made, 1, {"loss": 1}, range(1000, 1200))
    assert shown(made)["loss"] == {
        "step": 1199,
        "mean": 1199.5,
        "min": 1199,
        "max": 1200,
        "ranks": 2,
        "of": 2,
    }
    made.end(State.FAILED)
    assert shown(made) == {"loss": expected}


@pytest.mark.parametrize("points", [2000, 10])
def test_the_mean_is_whole_as_far_as_all_ranks_are(own_folders: Path, points: int) -> None:
    made = RunMaker(own_folders, 64)
    for rank in range(64):
        log(made, rank, {"loss": -rank}, range(42 if rank > 56 else 40))
    (curve,) = queries.curves(made.folder.id, points=points)["curves"]
    band, last = curve["band"], curve["last"]
    assert band is not None
    assert last is not None
    whole = band["whole"]
    assert (band["steps"][whole - 1], band["mean"][whole - 1]) == (39, 39 - 31.5)
    assert (last["step"], last["mean"], last["of"]) == (39, 39 - 31.5, 64)
    assert band["steps"][whole:][0] in (40, 41)
    assert set(band["ranks"]) == {7}
    assert band["times"][whole - 1] == BEGAN + 39


def test_ranks_that_log_at_other_steps_start_over_or_log_no_number(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    log(made, 0, {"loss": 0}, range(0, 31, 10))
    log(made, 1, {"loss": 0}, range(5, 26, 10))
    assert shown(made)["loss"] == {"step": 25, "mean": 22.5, "min": 20, "max": 25, "ranks": 2, "of": 2}
    for rank in range(2):
        log(made, rank, {"loss": 7}, range(3))
    assert shown(made)["loss"] == {"step": 2, "mean": 9, "min": 9, "max": 9, "ranks": 2, "of": 2}
    made.metric(0, 3, {"loss": "NaN"})
    made.metric(1, 3, {"loss": 4.0})
    assert shown(made)["loss"]["mean"] == 4
    made.metric(0, 4, {"loss": "NaN"})
    made.metric(1, 4, {"loss": "NaN"})
    assert shown(made) == {}


def test_recent_points_are_those_of_all_points(dice: Random) -> None:
    """However the points are divided, and whatever is forgotten between."""
    for _ in range(50):
        ranks = dice.randint(1, 5)
        logged = [
            [float(step) for step in range(dice.randint(1, 80)) if dice.random() < 0.7] or [0.0]
            for _ in range(ranks)
        ]
        recent = RecentPoints()
        left = [list(steps) for steps in logged]
        for rank in range(ranks):
            recent.add(rank, [left[rank][0]], [left[rank].pop(0)])
        while any(left):
            for rank in range(ranks):
                some = [left[rank].pop(0) for _ in range(min(len(left[rank]), dice.randint(0, 9)))]
                if some:
                    recent.add(rank, some, some)
            recent.trim(1, all_read=True)
        reached = min(steps[-1] for steps in logged)
        last = recent.last()
        assert last is not None
        if all(steps[0] <= reached for steps in logged):
            expected = {rank: max(s for s in steps if s <= reached) for rank, steps in enumerate(logged)}
            assert (last.step, last.values) == (reached, expected)


def test_a_curve_goes_over_all_attempts(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    for rank in range(2):
        log(made, rank, {"loss": 0, "first": 0}, range(10))
    made.next_attempt()
    assert shown(made)["loss"]["step"] == 9
    # The next attempt continues from a checkpoint of step 6, and the one after it from step 8.
    for first, offset in ((6, 100), (8, 200)):
        for rank in range(2):
            log(made, rank, {"loss": offset}, range(first, 12 - rank))
        made.next_attempt()
    assert shown(made) == {
        "loss": {"step": 10, "mean": 210, "min": 210, "max": 210, "ranks": 2, "of": 2},
        "first": {"step": 9, "mean": 9, "min": 9, "max": 9, "ranks": 2, "of": 2},
    }
    answer = queries.curves(made.folder.id)
    loss, first_only = answer["curves"]
    values = [0, 1, 2, 3, 4, 5, 106, 107, 208, 209, 210, 211]
    assert [(rank["steps"], rank["values"]) for rank in loss["ranks"]] == [
        (list(range(12)), values),
        (list(range(11)), values[:-1]),
    ]
    assert loss["band"] is not None
    assert loss["band"]["mean"] == values
    assert loss["attempts"] == [{"attempt": 1, "step": 6}, {"attempt": 2, "step": 8}]
    assert "attempts" not in first_only
    version = answer["version"]
    assert queries.curves(made.folder.id, since=version)["curves"] == []
    log(made, 0, {"loss": 300}, range(9, 10))
    again: Any = queries.curves(made.folder.id, since=version)
    assert again["curves"][0]["ranks"][0]["keep"] == 9
    assert again["curves"][0]["ranks"][0]["values"] == [309]
