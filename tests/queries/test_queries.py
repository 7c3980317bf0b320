"""What views are told about runs: pages of logs, curves, lists, changes."""

from __future__ import annotations

import json
import math
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from jupyter_dist import clusters, queries
from jupyter_dist.errors import DistError, InputError, RunNotFound
from jupyter_dist.folder import RunFolder, make_attempt
from jupyter_dist.job import RankState, State
from jupyter_dist.manage import actions, cluster_edits
from jupyter_dist.queries import changes, run_info
from jupyter_dist.queries.answers.logs import LogLine, LogPage, SearchResult
from jupyter_dist.queries.logs import line_index, pages
from jupyter_dist.queries.logs.folding import Part, fold
from jupyter_dist.queries.logs.line_index import LineIndex
from jupyter_dist.record.metrics import points
from jupyter_dist.showing.run import Run
from jupyter_dist.showing.summary import gather
from jupyter_dist.text.search import pattern_process
from jupyter_dist.worker import payload
from jupyter_dist.worker.rank.result_digest import content
from tests.rigs.run_maker import BEGAN, RunMaker


@pytest.fixture
def make(own_folders: Path) -> Callable[..., RunMaker]:
    return lambda world_size=2, **job: RunMaker(own_folders, world_size, **job)


def page(run: RunMaker, rank: int | None = None, start: int = 0, count: int = 1000) -> LogPage:
    return queries.log_page(run.folder.id, rank, None, start, count)


def texts(run: RunMaker, rank: int | None = None) -> list[str]:
    return [line["text"] for line in page(run, rank)["lines"]]


def everything(run: RunMaker) -> list[LogLine]:
    rows: list[LogLine] = []
    while more := page(run, None, len(rows))["lines"]:
        rows += more
    return rows


def test_a_rank_log_in_pages(make: Callable[..., RunMaker]) -> None:
    run = make(1)
    for i in range(10):
        run.print(0, "".join(f"line {100 * i + j}\n" for j in range(100)), BEGAN + i)
    found = page(run, 0, 495, 10)
    assert (found["start"], found["total"], found["complete"]) == (495, 1000, False)
    assert [(line["n"], line["text"]) for line in found["lines"]] == [
        (n, f"line {n}") for n in range(495, 505)
    ]
    assert [line["time"] - BEGAN for line in found["lines"]] == [4.0] * 5 + [5.0] * 5
    assert [line["n"] for line in page(run, 0, -3, 10)["lines"]] == [997, 998, 999]
    assert page(run, 0, 5000, 10)["lines"] == []
    assert page(run, None, 0, 2)["lines"][0]["ranks"] == [0]


def test_a_line_that_is_not_finished(make: Callable[..., RunMaker]) -> None:
    run = make()
    run.print(0, "whole\n 10%\r 20%", BEGAN + 1)
    for rank in (0, None):
        found = page(run, rank)
        assert (found["total"], found["complete"]) == (1, False)
        assert [(part["rank"], part["text"]) for part in found["partial"]] == [(0, " 10%\r 20%")]
    run.set_rank(0, state=State.SUCCEEDED, ended=BEGAN + 2)
    assert texts(run, 0) == ["whole", " 10%\r 20%"]
    assert page(run, 0)["partial"] == []
    assert texts(run) == ["whole"]
    run.end()
    assert texts(run) == ["whole", " 10%\r 20%"]
    assert page(run)["complete"] is True


def test_equal_lines_are_folded(make: Callable[..., RunMaker]) -> None:
    run = make(3)
    for rank in range(3):
        run.print(rank, f"epoch 1\nrank {rank}\nepoch 1\n", BEGAN + 1)
    run.end()
    assert [(line["rank"], line["ranks"], line["text"]) for line in page(run)["lines"]] == [
        (0, [0, 1, 2], "epoch 1"),
        (0, [0], "rank 0"),
        (1, [1], "rank 1"),
        (2, [2], "rank 2"),
        (0, [0, 1, 2], "epoch 1"),
    ]


def test_ranks_are_put_together_by_time(make: Callable[..., RunMaker]) -> None:
    run = make()
    run.print(1, "a\n", BEGAN + 1)
    run.print(0, "b\n", BEGAN + 2)
    run.print(1, "c\nd", BEGAN + 3)
    run.print(0, "e\n", BEGAN + 4)
    run.print(1, "f\n", BEGAN + 5)
    assert texts(run) == ["a", "b", "c", "e", "df"]
    run.print(0, "not noted yet\n")
    assert len(texts(run)) == 5  # the supervisor has not said when: its place is not known
    run.end()
    assert texts(run)[-1] == "not noted yet"


def test_rows_keep_their_numbers(make: Callable[..., RunMaker]) -> None:
    """However a log grows, what was shown stays; and a process that comes later sees the same."""
    chance = random.Random(5)
    run = make(4)
    written = [b""] * 4
    pieces = [b"same\n", b"\n", b"half ", b"long " * 900 + b"\n", b"%d of %d\n"]
    before: list[LogLine] = []
    when, settled = BEGAN, 0
    for tick in range(60):
        when += chance.choice([0.05, 0.05, 0.4, 3])
        for rank in range(4):
            if chance.random() < 0.6:
                some = b"".join(chance.choice(pieces) for _ in range(chance.choice([1, 3, 40])))
                data = some.replace(b"%d of %d", b"%d of %d" % (rank, tick))
                if chance.random() < 0.03:
                    data += b"flood\n" * 30_000
                written[rank] += data
                run.print(rank, data, when)
        if tick % 7 == 0:
            rows = everything(run)
            assert rows[:settled] == before[:settled]
            assert [(row["text"], row["rank"]) for row in rows[: len(before)]] == [
                (row["text"], row["rank"]) for row in before
            ]
            before, settled = rows, page(run)["settled"]
    run.end()
    rows = everything(run)
    for rank in range(4):
        wanted = written[rank].decode().removesuffix("\n").split("\n")
        assert [row["text"] for row in rows if rank in row["ranks"]] == wanted
    pages._known.clear()
    assert everything(run) == rows
    for expression in ("SAME", r"^\s*$", r"\d of \d+$", "[^x]of"):
        found = queries.log_search(run.folder.id, query=expression, regex=True, limit=10_000)
        hits = [row["n"] for row in rows if re.search(expression, row["text"], re.IGNORECASE)]
        assert (found["count"], found["hits"]) == (len(hits), hits[-10_000:])


LINES = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1)


@given(st.lists(st.dictionaries(st.integers(0, 3), LINES, max_size=4), max_size=5))
@settings(max_examples=300)
def test_folding_loses_and_invents_nothing(moments: list[dict[int, list[bytes]]]) -> None:
    parts = [
        Part(rank, 0.0, moment[rank], number)
        for number, moment in enumerate(moments)
        for rank in sorted(moment)
    ]
    folded = fold(parts)
    rows = [(line, ranks) for _, line, ranks in folded.rows(0, folded.count)]
    assert folded.lines() == [text for text, _ in rows]
    assert len(rows) == folded.count
    for rank in range(4):
        wanted = [line for part in parts if part.rank == rank for line in part.lines]
        assert [text for text, ranks in rows if rank in ranks] == wanted
    middle = [(line, ranks) for _, line, ranks in folded.rows(2, 5)]
    assert middle == rows[2:5]
    # Another moment only adds ranks, and rows at the end.
    fewer = fold([part for part in parts if part.moment < len(moments) - 1])
    earlier = [(line, ranks) for _, line, ranks in fewer.rows(0, fewer.count)]
    assert [text for text, _ in earlier] == [text for text, _ in rows[: len(earlier)]]
    for (_, ranks), (_, before) in zip(rows, earlier, strict=False):
        assert ranks[0] == before[0]
        assert set(before) <= set(ranks)


def test_the_index_of_a_log_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a plain split, with chunks so small that every border is met."""
    monkeypatch.setattr(line_index, "_CHUNK", 700)
    monkeypatch.setattr(line_index, "_KEPT", 1000)
    chance = random.Random(3)
    path = tmp_path / "log"
    index, data = LineIndex(path), b""
    for _ in range(60):
        size = chance.choice([0, 1, 5, 300, 2500])
        piece = b"".join(
            b"%d" % chance.randrange(10**9) * chance.choice([0, 1, 9]) + b"\n" for _ in range(size)
        )
        piece += b"y" * chance.choice([0, 3, 2000, 9000])
        data += piece
        with path.open("ab") as file:
            file.write(piece)
        *lines, rest = data.split(b"\n")
        assert index.refresh() == len(lines)
        start, count = chance.randrange(len(lines) + 1), chance.randrange(1, 600)
        found = list(index.read(start, count))
        wanted = lines[start : start + count]
        assert len(found) == len(wanted)
        for line, text in zip(found, wanted, strict=True):
            assert line.data == text or (not line.whole and text.startswith(line.data[:1000]))
        assert bool(index.rest()) == bool(rest)
    path.write_bytes(b"another\n")
    assert index.refresh() == 1
    path.unlink()
    assert index.refresh() == 0


def test_hostile_lines_are_text(make: Callable[..., RunMaker]) -> None:
    run = make(1)
    long, bar = b"x" * 1_500_000, b"".join(b"\r%7d/9999999" % i for i in range(100_000))
    run.print(0, b"\0\xff\xed\xa0\x80\x1b]0;title\x07<script>\n" + long + b"\n" + bar + b"\nend\n", BEGAN + 1)
    run.end()
    found = page(run, 0)
    json.dumps(found, allow_nan=False).encode()
    first, second, third, last = found["lines"]
    assert first["text"].startswith("\0\ufffd")
    assert first["text"].endswith("\x1b]0;title\x07<script>")
    assert "cut" not in first
    assert (second["text"], second["cut"]) == ("x" * 20_000, True)
    assert third["cut"] is True
    assert third["text"].endswith("\r  99999/9999999")  # of a bar the end is what a terminal shows
    assert last["text"] == "end"


def test_a_page_of_long_lines_is_bounded(make: Callable[..., RunMaker]) -> None:
    run = make(1)
    run.print(0, (b"z" * 50_000 + b"\n") * 400, BEGAN + 1)
    lines = page(run, 0)["lines"]
    assert len(lines) == 400
    assert sum(len(line["text"]) for line in lines) < 2_500_000
    assert all(line["cut"] for line in lines)


def test_search(make: Callable[..., RunMaker]) -> None:
    run = make(1)
    run.print(0, "Alpha\nbeta a.b\nalpha alpha\n\nünïcode ALPHA", BEGAN + 1)

    def search(query: str, **more: Any) -> SearchResult:
        return queries.log_search(run.folder.id, 0, query=query, **more)

    assert search("alpha") == {"count": 2, "hits": [0, 2], "truncated": False}
    assert search("alpha", case=True)["hits"] == [2]
    assert search("a.b")["hits"] == [1]
    assert search("^a.*a$", regex=True)["hits"] == [0, 2]
    assert search("a\\nb", regex=True)["count"] == 0
    for more in ({"limit": 1}, {"limit": 1, "regex": True}):
        assert search("a", **more) == {"count": 3, "hits": [2], "truncated": True}
    run.end()
    assert search("ÜNÏ")["hits"] == [4]
    for bad in ("(", "*", "[a"):
        with pytest.raises(InputError, match="not a regular expression"):
            search(bad, regex=True)
    assert search("(")["count"] == 0
    with pytest.raises(InputError, match="1 to 2000 characters"):
        search("")


def test_an_expression_without_end_is_ended(
    make: Callable[..., RunMaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_process, "LIMIT_S", 0.5)
    run = make(1, metrics={"x": "(a+)+$"})
    run.metric(0, 0, {"loss": 3.0})
    run.print(0, "a" * 60 + "b\n", BEGAN + 1)
    with pytest.raises(InputError, match=r"needs more than 0\.5 s"):
        queries.log_search(run.folder.id, query="(a+)+$", regex=True)
    answer = queries.curves(run.folder.id)
    assert (answer["names"], answer["problem"]) == (
        ["loss"],
        "--metric x: needs more than 0.5 s on this log. Make it simpler",
    )
    with pytest.warns(match="--metric x: needs more than"):
        assert [point.name for point in points.points(run.folder)] == ["loss"]


def test_attempts_have_their_own_logs(make: Callable[..., RunMaker]) -> None:
    run = make(1)
    run.print(0, "first\nlast words", BEGAN + 1)
    run.next_attempt()
    run.print(0, "second\n", BEGAN + 2)
    assert texts(run, 0) == ["second"]
    earlier = queries.log_page(run.folder.id, 0, 0)
    assert [line["text"] for line in earlier["lines"]] == ["first", "last words"]
    assert earlier["complete"] is True
    with pytest.raises(InputError, match="no attempt 5"):
        queries.log_page(run.folder.id, 0, 5)


def test_an_earlier_attempt_had_more_ranks(make: Callable[..., RunMaker]) -> None:
    """An elastic run grows beyond its first number of ranks, and a restart begins with that number again."""
    run = make(2)
    ranks = tuple(RankState(rank, State.RUNNING, host="node1", started=BEGAN) for rank in range(4))
    make_attempt(run.folder, 0, len(ranks))
    run.write(ranks=ranks)
    for rank in range(len(ranks)):
        run.print(rank, f"rank {rank}\n", BEGAN + rank)
        run.metric(rank, 0, {"loss": rank})
    run.next_attempt()
    first = queries.log_page(run.folder.id, attempt=0)
    assert [line["text"] for line in first["lines"]] == [f"rank {rank}" for rank in range(4)]
    assert [line["text"] for line in queries.log_page(run.folder.id, 3, 0)["lines"]] == ["rank 3"]
    with pytest.raises(InputError, match="has ranks 0 to 1, not 3"):
        queries.log_page(run.folder.id, 3)
    (loss,) = queries.curves(run.folder.id, attempt=0)["curves"]
    assert [rank["values"] for rank in loss["ranks"]] == [[0], [1], [2], [3]]
    assert Run(run.folder).log(attempt=0) == "".join(f"[{rank}] rank {rank}\n" for rank in range(4))
    assert len(gather(run.folder).curves["loss"].series) == 4


def test_download(make: Callable[..., RunMaker]) -> None:
    run = make(2)
    run.print(0, b"\xff\nsame\n", BEGAN + 1)
    run.print(1, b"same\nmore", BEGAN + 1)
    run.end()
    assert b"".join(queries.log_download(run.folder.id, 0)) == b"\xff\nsame\n"
    assert b"".join(queries.log_download(run.folder.id)) == b"[0] \xff\n[0,1] same\n[1] more\n".replace(
        b"[0,1]", b"[0-1]"
    )


@pytest.mark.parametrize("id", ["..", "", "20200101-000000-abcd", "x/../y", "20200101-000000-abcd\n", "\0"])
def test_only_whole_ids(make: Callable[..., RunMaker], id: str) -> None:
    run = make()
    for ask in (queries.run, queries.errors, queries.results, actions.remove, queries.log_page):
        with pytest.raises(RunNotFound, match="no run"):
            ask(id)
    with pytest.raises(RunNotFound):
        queries.run(run.folder.id[:-1])


def test_a_run(make: Callable[..., RunMaker]) -> None:
    run = make(2, label="In[3]", notes=("sent along: model",))
    run.event(0, "note", text="slow disk")
    run.event(1, "note", text="slow disk")
    for step in range(11):
        run.event(0, "progress", BEGAN + step, id=0, n=10 * step, total=100, desc="train")
        run.event(1, "progress", BEGAN + step, id=0, n=step, total=100, desc="train")
    run.event(1, "progress", BEGAN + 11, id="odd", n=[], total="x")
    found = queries.run(run.folder.id)
    assert (found["name"], found["state"], found["source"]) == ("In[3]", "running", "train()")
    assert found["notes"] == ["sent along: model", "slow disk"]
    assert found["progress"] == {"rank": 1, "n": 10, "total": 100, "desc": "train", "rate": 1.0}
    assert [bar["n"] for bar in found["progress_by_rank"]] == [100, 10]
    assert [rank["pid"] for rank in found["ranks"]] == [1000, 1001]
    run.set_rank(1, state=State.FAILED, signal=9, exit_code=None)
    assert queries.run(run.folder.id)["ranks"][1]["signal_name"] == "SIGKILL"


def test_results_are_one_where_they_are_the_same_and_not_where_they_look_so(
    make: Callable[..., RunMaker], tmp_path: Path
) -> None:
    arrays = [np.arange(2000), np.arange(2000), np.where(np.arange(2000) == 1000, -1, np.arange(2000))]
    images = [Image.new("RGB", (8, 8), colour) for colour in ("red", "red", "blue")]
    assert repr(arrays[0]) == repr(arrays[2])
    assert repr(images[0]) != repr(images[1])
    for values in (arrays, images):
        run = make(3)
        for rank, value in enumerate(values):
            size = payload.write_value(run.rank(rank).result, value)
            told = content(value, repr(value), run.rank(rank).result)
            run.event(rank, "result", repr=repr(value), bytes=size, error=None, content=told)
        run.end()
        assert [found["ranks"] for found in queries.results(run.folder.id)] == [[0, 1], [2]]
        assert "2 different results" in gather(run.folder).text() or len(gather(run.folder).rows) == 2
    # What says all there is needs no digest.
    assert content({"loss": 0.5}, "{'loss': 0.5}", tmp_path / "none") is None


def test_results_and_errors(make: Callable[..., RunMaker]) -> None:
    run = make(4)
    for rank in (0, 1, 3):
        run.result(rank, [1.5] if rank < 2 else "other")
    run.fail(2, "ValueError", "bad", "Traceback", frames=[{"line": "x", "function": math.nan}, 7])
    found = queries.results(run.folder.id)
    assert [(row["ranks"], row["repr"]) for row in found] == [([0, 1], "[1.5]"), ([3], "'other'")]
    (error,) = queries.errors(run.folder.id)
    assert (error["rank"], error["kind"], error["type"]) == (2, "exception", "ValueError")
    assert error["frames"] == [{"file": "", "label": "", "line": None, "function": "nan", "source": ""}]
    json.dumps(error, allow_nan=False)


def test_the_list(make: Callable[..., RunMaker], own_folders: Path) -> None:
    empty = queries.runs()
    assert (empty["runs"], empty["root"]) == ([], str(own_folders))
    assert "JUPYTER_DIST_RUNS" in str(empty["hint"])
    assert str(own_folders) in str(empty["hint"])
    a = make(notebook="/x/train.ipynb", label="In[1]")
    b = make(label="In[2]")
    b.fail(1, "ValueError", "bad", "")
    b.end(State.FAILED, reason="rank 1 failed: ValueError: bad")
    listed = queries.runs()
    assert listed["hint"] is None
    assert queries.runs(state="failed")["notebooks"] == ["/x/train.ipynb"]
    assert {row["id"] for row in listed["runs"]} == {a.folder.id, b.folder.id}
    assert "ranks" not in listed["runs"][0]
    assert [row["id"] for row in queries.runs(text="valueerror FAILED")["runs"]] == [b.folder.id]
    assert [row["id"] for row in queries.runs(state="running,pending")["runs"]] == [a.folder.id]
    assert [row["id"] for row in queries.runs(notebook="/x/train.ipynb")["runs"]] == [a.folder.id]
    newest, oldest = (row["id"] for row in listed["runs"])
    assert queries.runs(limit=1)["total"] == 2
    assert [row["id"] for row in queries.runs(before=newest)["runs"]] == [oldest]
    with pytest.raises(InputError, match="state must be"):
        queries.runs(state="bad")
    a.folder.job.write_text("{")
    (broken,) = (row for row in queries.runs()["runs"] if row["id"] == a.folder.id)
    assert (broken["state"], broken["backend"]) == ("lost", "?")


def test_an_ended_run_is_read_once(make: Callable[..., RunMaker]) -> None:
    run = make()
    run.end()
    first = queries.runs()["runs"][0]
    run.folder.job.write_text(run.folder.job.read_text().replace('"local"', '"other"'))
    assert queries.runs()["runs"][0]["backend"] == first["backend"]
    run.write(reason="changed after all")
    assert queries.runs()["runs"][0]["reason"] == "changed after all"


def curve(run: RunMaker, name: str, **asked: Any) -> dict[str, Any]:
    (found,) = queries.curves(run.folder.id, names=[name], **asked)["curves"]
    json.dumps(found, allow_nan=False)
    return dict(found)


def test_curves_keep_what_matters(make: Callable[..., RunMaker]) -> None:
    run = make(1)
    chance = random.Random(1)
    values: list[float | str] = [chance.random() for _ in range(5000)]
    values[1234], values[2345], values[3456], values[4000] = 99.0, -99.0, "NaN", "-Infinity"
    for step, value in enumerate(values):
        run.metric(0, step, {"loss": value})
    (rank,) = curve(run, "loss", points=200)["ranks"]
    assert rank["count"] == 5000
    assert 100 < len(rank["steps"]) < 320
    by_step = dict(zip(rank["steps"], rank["values"], strict=True))
    assert rank["steps"] == sorted(rank["steps"])
    assert (by_step[1234], by_step[2345]) == (99.0, -99.0)
    assert {0, 4999} <= by_step.keys()
    assert (by_step[3456], by_step[4000]) == (None, None)
    assert rank["special"] == [{"step": 3456, "value": "NaN"}, {"step": 4000, "value": "-Infinity"}]
    assert all(math.isclose(by_step[step], values[step], rel_tol=1e-6) for step in (0, 4999))  # type: ignore[arg-type]
    assert rank["not_finite"] == {"count": 2, "last": {"step": 4000, "value": "-Infinity"}, "since": None}
    assert rank["times"][0] == BEGAN
    (whole,) = curve(run, "loss", points=10_000)["ranks"]
    assert len(whole["steps"]) == 5000
    for step in (5000, 5001):
        run.metric(0, step, {"loss": "NaN"})
    (bad,) = curve(run, "loss", points=200)["ranks"]
    assert bad["not_finite"] == {"count": 4, "last": {"step": 5001, "value": "NaN"}, "since": 5000}


def test_curves_of_small_and_large_numbers(make: Callable[..., RunMaker]) -> None:
    run = make(1)
    values = [0.0, -0.1, 1.23456789e-300, -9.87654321e300, 5e-324, 123456.75, 1e22]
    for step, value in enumerate(values):
        run.metric(0, 10**12 + step, {"x": value})
    (rank,) = curve(run, "x")["ranks"]
    assert rank["steps"][0] == 10**12
    assert all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(rank["values"], values, strict=True))


def test_a_band_over_many_ranks(make: Callable[..., RunMaker]) -> None:
    run = make(9)
    for rank in range(9):
        for step in (0, 10, 20):
            run.metric(rank, step, {"loss": float(rank + step)})
    run.metric(8, 30, {"loss": "Infinity"})
    band = curve(run, "loss")["band"]
    assert band == {
        "steps": [0, 10, 20],
        "mean": [4.0, 14.0, 24.0],
        "min": [0.0, 10.0, 20.0],
        "max": [8.0, 18.0, 28.0],
        "times": [BEGAN, BEGAN + 10, BEGAN + 20],
        "whole": 3,
        "ranks": [],
    }
    coarse = curve(run, "loss", points=10)["band"]
    assert (coarse["min"][0], coarse["max"][-1]) == (0.0, 28.0)


def test_curves_grow(make: Callable[..., RunMaker]) -> None:
    run = make(2, metrics={"acc": r"acc=([0-9.]+)"})
    run.metric(0, 0, {"loss": 3.0})
    first = queries.curves(run.folder.id)
    assert first["names"] == ["loss"]
    assert queries.curves(run.folder.id, since=first["version"]) == {**first, "curves": []}
    run.metric(0, 1, {"loss": 2.0})
    with run.rank(1).events.open("ab") as file:
        file.write(b'{"seq":1,"time":1.5,"kind":"metric","step":0,"values":{"lo')
    run.print(1, "acc=0.25 acc=nothing\nacc=0.5\nacc=0.7", BEGAN + 3)
    second: Any = queries.curves(run.folder.id, since=first["version"])
    assert second["names"] == ["loss", "acc"]
    with run.rank(1).events.open("ab") as file:
        file.write(b'ss":7}}\nno json\n[]\n')
    assert [rank["values"] for rank in curve(run, "loss")["ranks"]] == [[3.0, 2.0], [7.0]]
    (acc,) = curve(run, "acc")["ranks"]
    assert (acc["rank"], acc["steps"], acc["values"]) == (1, [0, 1], [0.25, 0.5])
    assert acc["times"] == [BEGAN + 3] * 2
    run.next_attempt()
    assert queries.curves(run.folder.id, attempt=1)["names"] == []
    assert queries.curves(run.folder.id, attempt=0)["names"] == ["loss", "acc"]


def test_stop_stacks_remove(make: Callable[..., RunMaker]) -> None:
    run = make()
    actions.stop(run.folder.id)
    assert [path.name for path in run.folder.requests.iterdir()] == ["stop"]
    with pytest.raises(InputError, match="stop"):
        actions.remove(run.folder.id)
    assert actions.stacks(run.folder.id, timeout_s=0.0)["silent"] == [0, 1]
    run.end()
    with pytest.raises(DistError, match="has ended"):
        actions.stacks(run.folder.id)
    size = queries.disk_size(run.folder.id)["bytes"]
    assert actions.remove(run.folder.id) == {"id": run.folder.id, "freed_bytes": size}


def test_clean_leaves_what_runs(make: Callable[..., RunMaker]) -> None:
    old, running, new = make(began=time.time() - 9e6), make(began=time.time() - 9e6), make(began=time.time())
    old.end()
    new.end(after_s=0.0)
    assert actions.clean(30)["removed"] == [old.folder.id]
    assert running.folder.path.exists()
    assert new.folder.path.exists()
    for days in (0.5, -1.0, math.nan, math.inf):
        with pytest.raises(InputError):
            actions.clean(days)


def test_saving_a_cluster_keeps_comments_and_place() -> None:
    path = clusters.path()
    path.parent.mkdir(parents=True)
    path.write_text(
        '# mine\n[clusters.a]\nbackend = "local"\n# enough\nnp = 4\n\n[clusters.b]\nbackend = "local"\n'
    )
    cluster_edits.save("c", {"backend": "local", "options": {"np": 8, "timeout": "2m"}}, old_name="a")
    text = path.read_text()
    assert "# mine" in text
    assert "# enough\nnp = 8" in text
    listed = queries.clusters()["clusters"]
    assert [(row["name"], row["options"]) for row in listed] == [
        ("c", {"np": 8, "timeout": "2m"}),
        ("b", {}),
    ]
    # What torchrun makes of it on this machine is not what it is on another one.
    cluster_edits.save("each", {"backend": "torchrun", "options": {"nproc_per_node": "auto", "np": "2"}})
    assert clusters.get("each").options == {"nproc_per_node": "auto", "np": 2}
    with pytest.raises(InputError, match="Choose another name"):
        cluster_edits.save("b", {"backend": "local", "options": {}}, old_name="c")
    with pytest.raises(InputError, match="no cluster 'zzz'"):
        cluster_edits.save("d", {"backend": "local", "options": {}}, old_name="zzz")
    with pytest.raises(InputError, match="cannot be saved"):
        cluster_edits.save("d", {"backend": "local", "options": {"detach": True}})
    path.write_text('[clusters.x]\nbackend = "local"\nnp = 0\n')
    assert [row["problem"] for row in queries.clusters()["clusters"]] == [
        "np needs a whole number of at least 1, got 0"
    ]
    path.write_text("[clusters.x]\n")
    assert "backend" in str(queries.clusters()["problem"])


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    return [message["kind"] for message in messages]


def test_a_run_whose_ranks_work_is_not_pending(make: Callable[..., RunMaker]) -> None:
    """The backend may still start the other ranks."""
    run = make(3)
    run.write(state=State.PENDING, started=None, ranks=())
    watch: Any = queries.RunChanges([run.folder.id])
    assert watch.poll()[0]["run"]["state"] == "pending"
    run.event(1, "started", BEGAN + 5)
    run.event(1, "progress", BEGAN + 6, id=0, n=1, total=2, desc="")
    (told,) = [message["run"] for message in watch.poll() if message["kind"] == "run"]
    (listed,) = queries.runs()["runs"]
    for found in (told, listed):
        assert (found["state"], found["started"]) == ("running", BEGAN + 5)
        assert found["progress"] is not None
    assert [rank["state"] for rank in told["ranks"]] == ["pending", "running", "pending"]


def test_watch_tells_what_changed(make: Callable[..., RunMaker], wait_for: Callable[..., Any]) -> None:
    run = make()
    watch: Any = queries.RunChanges([run.folder.id])
    assert not watch.idle
    assert kinds(watch.poll()) == ["run", "log", "curves"]
    assert kinds(watch.poll()) == []
    run.print(1, "x\n", BEGAN + 1)
    (message,) = watch.poll()
    assert (message["kind"], message["ranks"], message["all"]) == ("log", {"0": 0, "1": 1}, 1)
    run.event(0, "progress", id=0, n=1, total=2, desc="")
    told = watch.poll()
    assert "curves" in kinds(told)
    if "run" not in kinds(told):  # which is told at once only if the last report is old enough
        told = wait_for(lambda: [m for m in watch.poll() if m["kind"] == "run"], what="its progress")
    (told,) = [message for message in told if message["kind"] == "run"]
    assert told["run"]["progress"]["n"] == 1
    run.next_attempt()
    assert kinds(watch.poll())[:2] == ["run", "log"]
    run.end()
    messages = watch.poll()
    assert [m["complete"] for m in messages if m["kind"] == "log"] == [True]
    os.unlink(run.folder.state)  # as far as a removal has come
    assert kinds(watch.poll()) == ["gone"]
    assert watch.poll() == []
    run.end()
    assert kinds(watch.poll()) == ["log", "run", "curves"]
    actions.remove(run.folder.id)
    assert kinds(watch.poll()) == ["gone"]
    assert watch.poll() == []
    watch.set([])
    assert watch.idle


def test_watch_tells_of_metrics_in_printed_lines(make: Callable[..., RunMaker]) -> None:
    run = make(metrics={"acc": r"acc=([0-9.]+)"})
    watch: Any = queries.RunChanges([run.folder.id])
    watch.poll()
    run.print(1, "acc=0.5\n", BEGAN + 1)
    assert kinds(watch.poll()) == ["log", "curves"]
    assert kinds(watch.poll()) == []


def test_who_hears_of_an_end_has_heard_of_every_line(
    make: Callable[..., RunMaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run ends between the look at its state and what is told of it."""
    run = make()
    watch: Any = queries.RunChanges([run.folder.id])
    watch.poll()

    def at_its_end(folder: RunFolder) -> Any:
        if not run.status.state.ended:
            run.print(0, "last of rank 0\n", BEGAN + 2)
            run.print(1, "last of rank 1\n", BEGAN + 2)
            run.end()
        return run_info.full(folder)

    monkeypatch.setattr(changes, "full", at_its_end)
    run.set_rank(0, state=State.SUCCEEDED)
    told: list[dict[str, Any]] = [message for _ in range(2) for message in watch.poll()]
    ends = [m["kind"] == "run" and m["run"]["ended"] is not None for m in told]
    before = [m["all"] for m in told[: ends.index(True)] if m["kind"] == "log" and m["complete"]]
    assert before == [2], told


def test_rows_are_read_while_others_are_added(make: Callable[..., RunMaker]) -> None:
    """What is half added, by another thread, does not count yet."""
    run = make()
    run.print(0, "one\n", BEGAN + 1)
    queries.log_page(run.folder.id)
    index = pages.AttemptLogs.of(run.folder, 0, 2).all
    columns = index.refresh(ended=None)
    columns.times.append(BEGAN + 2)
    assert [row.data for row in index.rows(columns, 0, 9)] == [b"one"]
    columns.times.pop()
    columns.begin_group(True)
    assert [row.data for row in index.rows(columns, 0, 9)] == [b"one"]
    assert [*index.text(columns)] == [b"one\n"]


def test_the_list_is_watched_beside_very_many_runs(
    make: Callable[..., RunMaker],
) -> None:
    watch: Any = queries.RunChanges([*(f"20260101-000000-{number:04x}" for number in range(300)), "runs"])
    watch.poll()
    make()
    assert "runs" in kinds(watch.poll())


def test_watch_the_list(make: Callable[..., RunMaker], wait_for: Callable[..., Any]) -> None:
    watch: Any = queries.RunChanges(["runs"])
    watch.poll()
    run = make()
    assert kinds(wait_for(watch.poll, what="the new run")) == ["runs"]
    run.event(0, "progress", id=0, n=1, total=2, desc="")
    assert kinds(wait_for(watch.poll, what="its progress")) == ["runs"]
    run.end()
    assert kinds(wait_for(watch.poll, what="its end")) == ["runs"]
    os.unlink(run.folder.job)
    assert kinds(wait_for(watch.poll, what="its removal")) == ["runs"]
