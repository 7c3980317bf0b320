"""What measurements say: speed-up, its limit, two laws, and a projection that is marked as one."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_dist.queries.scaling import scaling_of
from jupyter_dist.record.scaling.measurement import Measurement, measure
from jupyter_dist.record.scaling.report import report
from jupyter_dist.record.steps.step_times import RunSteps
from jupyter_dist.record.trials import Trial


def size(ranks: int, step_s: float, waits_s: float | None = 0.0, **more: Any) -> Measurement:
    data_s = more.pop("data_s", None)
    rest_s = step_s - (waits_s or 0.0) - (data_s or 0.0)
    rates = {"steps_per_s": ranks / step_s, "samples_per_s": None, **more}
    return Measurement(
        ranks, 50, **rates, step_s=step_s, data_s=data_s, compute_s=rest_s, collectives_s=waits_s,
        fast_s=0.8 * step_s, slow_s=1.25 * step_s,
    )  # fmt: skip


def test_each_law_finds_its_own_serial_part_and_projects_by_it() -> None:
    sizes = (1, 2, 4, 8)
    amdahl = report([size(n, 0.1 * n * (0.2 + 0.8 / n)) for n in sizes])
    gustafson = report([size(n, 0.1 * n / (0.3 + 0.7 * n)) for n in sizes])
    for found, name, serial, ahead in (
        (amdahl, "Amdahl", 0.2, 1 / (0.2 + 0.8 / 32)),
        (gustafson, "Gustafson", 0.3, 0.3 + 0.7 * 32),
    ):
        best = found.best
        assert best is not None
        assert best.name == name
        assert [best.serial, best.error] == pytest.approx([serial, 0])
        assert [row.ranks for row in found.rows if row.projected] == [16, 32]
        last = found.rows[-1]
        assert last.speedup == pytest.approx(ahead)
        assert last.low <= last.efficiency <= last.high
        assert last.low < last.high, "the other law says something else"
        assert (last.limit, last.why) == ("", "")
    first, second = amdahl.rows[:2]
    assert (first.speedup, first.efficiency, first.low, first.high) == pytest.approx((1, 1, 0.8, 1.25))
    assert (second.speedup, second.efficiency) == pytest.approx((1 / 0.6, 1 / 1.2))


def test_two_sizes_fit_exactly_and_one_projects_nothing() -> None:
    two = report([size(2, 0.1), size(4, 0.15)])
    assert [law.error for law in two.laws] == [None, None]
    assert [row.ranks for row in two.rows] == [2, 4, 8, 16]
    assert two.rows[1].speedup == pytest.approx(4 / 3)
    assert two.rows[2].efficiency == two.rows[2].low, "Amdahl's law, the careful one"
    one = report([size(2, 0.1)])
    assert ([row.ranks for row in one.rows], one.laws, one.best) == ([2], (), None)
    assert report([]).rows == ()
    # More than linear, and slower with each rank: neither law has a negative part, and the second fits none.
    for steps_s, projected in (((0.1, 0.08), [4, 8]), ((0.1, 0.9), [])):
        odd = report([size(1, steps_s[0]), size(2, steps_s[1])])
        assert all(0 <= law.serial <= 1 for law in odd.laws)
        assert [row.ranks for row in odd.rows if row.projected] == projected


@pytest.mark.parametrize(
    ("one", "limit", "why"),
    [
        (size(4, 0.22, 0.12), "communication", "100 % of the loss"),
        (size(4, 0.2, 0.02, data_s=0.09), "data", "80 % of the loss"),
        (size(4, 0.2, 0.02), "compute", "80 % of the loss"),
        (size(4, 0.2, None), "unknown", "100 % of the loss"),
        (size(4, 0.2, 0.09, straggler=2, cause="data"), "straggler", "rank 2, data"),
        (size(4, 0.105, 0.005), "compute", "95 % of a step"),
        (size(4, 0.105, 0.0, data_s=0.1), "data", "95 % of a step"),
    ],
)
def test_the_limit_is_the_part_that_has_grown(one: Measurement, limit: str, why: str) -> None:
    first = size(1, 0.1, data_s=0.01) if one.data_s and one.step_s > 0.15 else size(1, 0.1)
    assert (lambda row: (row.limit, row.why))(report([first, one]).rows[1]) == (limit, why)


def test_strong_scaling_is_judged_by_samples_not_by_the_length_of_a_step() -> None:
    # Each rank takes a fourth of the samples in half of the time: the waits are what is lost.
    found = report([size(1, 0.1, samples_per_s=640.0), size(4, 0.05, 0.025, samples_per_s=1280.0)])
    assert found.unit == "samples/s"
    assert (found.rows[1].speedup, found.rows[1].efficiency) == (2, 0.5)
    assert found.rows[1].limit == "communication"
    # Without the samples of one size, all are compared by steps.
    assert report([size(1, 0.1, samples_per_s=640.0), size(4, 0.05)]).unit == "steps/s"


def test_prices_are_those_of_the_backend_and_of_the_size() -> None:
    trials = [
        Trial(number, f"r-t{number}", {"ranks": one.ranks}, "succeeded", measured=one)
        for number, one in enumerate((size(1, 0.1), size(2, 0.125)))
    ]
    options = {"instance_type": "ml.m5.xlarge", "instance_count": 2}
    found = scaling_of(trials, {"backend": "sagemaker", "options": options})
    one, two, *ahead = found["rows"]
    assert one["usd_per_hour"] is not None
    assert one["usd_per_million"] is not None
    assert two["usd_per_hour"] == 2 * one["usd_per_hour"]
    assert one["usd_per_million"] == pytest.approx(one["usd_per_hour"] / 3600 / 10 * 1e6)
    assert two["usd_per_million"] == pytest.approx(1.25 * one["usd_per_million"])
    assert ([row["id"] for row in found["rows"]], len(ahead)) == (["r-t0", "r-t1", None, None], 2)
    plain = scaling_of(trials, {"backend": "local", "options": {}})
    assert {row["usd_per_hour"] for row in plain["rows"]} == {None}
    cluster = {"new_cluster": True, "node_type": "g4dn.xlarge", "workers": 1, "volume": "/Volumes/a/b/c"}
    billed = scaling_of(trials, {"backend": "databricks", "options": cluster})
    assert {row["usd_per_hour"] is None for row in billed["rows"]} == {False}


def test_a_measurement_survives_its_file_and_ranks_without_steps() -> None:
    steps = RunSteps()
    assert measure(steps, 2) is None
    window = {"by": "log", "steps": 10, "wall_s": 1.0, "samples": 80, "fast_s": 0.09, "slow_s": 0.2}
    steps.take(0, window)
    steps.take(0, {**window, "steps": 30, "wall_s": 3.0, "samples": 240, "fast_s": 0.05})
    found = measure(steps, 2)
    assert found is not None
    assert Measurement.from_json(found.to_json()) == found
    assert (found.steps, found.collectives_s) == (40, None)
    assert [found.steps_per_s, found.samples_per_s] == pytest.approx([20, 160])
    assert [found.fast_s, found.slow_s] == pytest.approx([0.06, 0.2])
