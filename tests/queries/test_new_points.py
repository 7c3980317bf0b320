"""What a page that draws curves receives again and again: what is new, whatever the length of the run."""

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from jupyter_dist import queries
from jupyter_dist.queries.metrics.band_sums import BandSums
from jupyter_dist.queries.metrics.series import Series

from ..rigs.run_maker import RunMaker

_LISTS = ("steps", "values", "times", "mean", "min", "max")


def patched(before: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
    """Return the whole answer, from an earlier one and the news."""
    return {**news, "curves": _patched_list(before["curves"], news["curves"], "name", news["names"])}


def _patched_list(before: list[Any], news: list[Any], key: str, order: list[Any]) -> list[Any]:
    found = {one[key]: one for one in before}
    for one in news:
        old = found.get(one[key], {})
        found[one[key]] = {
            **_joined(one, old),
            **({"band": one["band"] and _joined(one["band"], old.get("band"))} if "band" in one else {}),
        }
        if "ranks" in one and key == "name":
            ranks = [rank["rank"] for rank in one["ranks"]]
            found[one[key]]["ranks"] = _patched_list(old.get("ranks", []), one["ranks"], "rank", ranks)
    return [found[name] for name in order if name in found]


def _joined(new: dict[str, Any], old: Any) -> dict[str, Any]:
    keep = new.get("keep", 0)
    whole = {name: old[name][:keep] + new[name] for name in _LISTS if keep and name in new}
    return {name: value for name, value in {**new, **whole}.items() if name != "keep"}


def log(made: RunMaker, rank: int, names: list[str], steps: range, noise: Random) -> None:
    lines = [
        {"seq": step, "time": step / 10, "kind": "metric", "step": step, "values": values}
        for step in steps
        if (values := {name: noise.random() for name in names})
    ]
    with made.rank(rank).events.open("ab") as file:
        file.write(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))


@pytest.mark.parametrize("ranks", ["none", "1,3", "all"])
def test_the_news_and_what_was_known_are_the_whole(own_folders: Path, dice: Random, ranks: str) -> None:
    made = RunMaker(own_folders, 6)
    asked: dict[str, Any] = {"points": 60, "ranks": ranks}
    reached = [0] * 6
    known: Any = {"curves": [], "version": None}
    for turn in range(25):
        for rank in range(6):
            more = dice.choice([0, 1, 2, 17])
            log(made, rank, ["loss", "acc"], range(reached[rank], reached[rank] + more), dice)
            reached[rank] += more
        if turn == 12:
            made.metric(4, reached[4], {"loss": "NaN", "late": 1.0})
        if turn == 18:
            made.next_attempt()
            reached = [min(reached) // 2] * 6
        news = queries.curves(made.folder.id, since=known["version"], **asked)
        known = patched(known, dict(news))
        whole = queries.curves(made.folder.id, **asked)
        assert known == {**whole, "version": known["version"]}
        json.dumps(news, allow_nan=False)


def test_a_band_does_not_depend_on_when_points_came(dice: Random) -> None:
    made = {rank: Series() for rank in range(4)}
    grown = BandSums()
    for _ in range(30):
        for series in made.values():
            start = series.steps[-1] if series.steps else dice.randint(-50, 50)
            for step in range(int(start) + 1, int(start) + dice.choice([1, 3, 200])):
                series.append(step, dice.random(), step / 10)
        grown.take(made)
    until = min(series.steps[-1] for series in made.values())
    at_once = BandSums()
    at_once.take(made)
    for points in (20, 500, 5000):
        band = grown.band(made, points, until)
        assert len(band["steps"]) <= points + 2
        whole = at_once.band(made, points, until)
        assert {**band, "mean": pytest.approx(band["mean"], rel=1e-6)} == whole
        assert band["steps"][band["whole"] - 1] == until
        values = np.concatenate([np.array(series.values) for series in made.values()])
        lowest = min(value for value in band["min"] if value is not None)
        assert lowest == pytest.approx(values.min())


def test_a_page_of_24_charts_of_16_ranks_gets_little(own_folders: Path, dice: Random) -> None:
    made = RunMaker(own_folders, 16)
    names = [f"loss/{number}" for number in range(24)]
    for rank in range(16):
        log(made, rank, names, range(300), dice)
    first = queries.curves(made.folder.id, points=720)
    assert [curve["ranks"] for curve in first["curves"]] == [[]] * 24
    # A page asks at most five times a second: two steps of each rank are new.
    for rank in range(16):
        log(made, rank, names, range(300, 302 + rank % 2), dice)
    news = json.dumps(queries.curves(made.folder.id, points=720, since=first["version"])).encode()
    assert 5 * len(gzip.compress(news, 3)) < 100_000
    (seen,) = queries.curves(made.folder.id, points=720, names=["loss/7"], since=first["version"])["curves"]
    assert seen["name"] == "loss/7"
