"""The summary of a run as text and as HTML, with its curves."""

from __future__ import annotations

import ast
import json
import math
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from IPython.lib.pretty import pretty

import jupyter_dist
from jupyter_dist.folder import make_attempt
from jupyter_dist.job import RankState, State
from jupyter_dist.showing.run import Run
from tests.rigs.failed_runs import failed
from tests.rigs.run_maker import BEGAN, RunMaker


def summary(made: RunMaker) -> str:
    return str(pretty(Run(made.folder)))


def test_the_summary_is_one_table(own_folders: Path) -> None:
    made = RunMaker(own_folders, 8)
    for rank in range(8):
        made.metric(rank, 1, {"loss": 9.0})
        made.metric(rank, 2, {"loss": 0.1 * (rank + 1), "acc": 0.97})
        made.result(rank, {"acc": 0.97})
        made.set_rank(rank, peak_memory_bytes=(500 + rank) * 10**6)
    made.end()
    assert summary(made).split("\n") == [
        f"run {made.folder.id} succeeded: 8 ranks on local, 12.3 s",
        "",
        "rank  state      host   exit  duration  peak memory   result",
        "0-7   succeeded  node1  0     12.3 s    500 – 507 MB  {'acc': 0.97}",
        "",
        "metric  step  mean  min – max    ranks",
        "loss    2     0.45  0.1 – 0.8    0-7",
        "acc     2     0.97  0.97 – 0.97  0-7",
        "",
        f"logs: {made.folder.path}/attempts/0/ranks/*/output.log",
    ]


def test_a_step_keeps_all_its_digits(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    for step in (1_234_566, 1_234_567):
        made.metric(0, step, {"loss": 0.5})
    made.end()
    assert "loss    1234567  0.5" in summary(made)
    assert ">1234566</text>" in (Run(made.folder)._repr_html_() or "")


def test_both_ends_of_a_range_have_a_unit_if_their_units_differ(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    for rank, (taken, peak) in enumerate([(59.0, 500 * 10**6), (120.0, 1200 * 10**6)]):
        made.result(rank, "same")
        made.set_rank(rank, state=State.SUCCEEDED, exit_code=0, ended=BEGAN + taken, peak_memory_bytes=peak)
    made.end()
    (row,) = (line for line in summary(made).split("\n") if line.startswith("0-1"))
    assert re.split(" {2,}", row)[-3:] == ["59.0 s – 2 min 0 s", "500 MB – 1.2 GB", "'same'"]


def test_the_mean_of_a_metric_is_nan_if_one_rank_has_diverged(own_folders: Path) -> None:
    made = RunMaker(own_folders, 3)
    for rank in range(3):
        made.metric(rank, 1, {"loss": 0.5 + rank, "half": math.nan if rank == 1 else 0.5 + rank})
        made.metric(rank, 2, {"loss": math.nan, "half": math.nan if rank == 1 else 0.5 + rank})
    made.end()
    rows = [line.split() for line in summary(made).split("\n") if line.startswith(("loss", "half"))]
    assert rows == [["loss", "2", "nan", "0-2"], ["half", "2", "nan", "0.5", "–", "2.5", "0-2"]]


def test_ranks_that_differ_have_rows_of_their_own(own_folders: Path) -> None:
    made = RunMaker(own_folders, 4)
    for rank in (0, 1, 3):
        made.result(rank, rank // 3)
        made.set_rank(rank, state=State.SUCCEEDED, exit_code=0, ended=BEGAN + 2)
    made.set_rank(2, state=State.FAILED, signal=9, ended=BEGAN + 3)
    made.end(State.FAILED)
    lines = summary(made).split("\n")
    assert lines[1] == "rank 2 failed: ended by SIGKILL"
    assert [line.split()[:2] for line in lines[4:7]] == [
        ["0-1", "succeeded"],
        ["2", "failed"],
        ["3", "succeeded"],
    ]
    assert "1002  SIGKILL" in lines[5]


def test_the_rank_that_failed_first_is_told_from_its_victims(own_folders: Path) -> None:
    made = failed(own_folders, 4)
    for rank in (0, 2, 3):
        made.fail(rank, "RuntimeError", f"Connection reset by peer {rank}", "", BEGAN + 6)
    made.end(State.FAILED)
    rows = [line for line in summary(made).split("\n") if " failed " in line]
    assert [row.split()[0] for row in rows] == ["0", "1", "2-3"]
    assert rows[1].endswith("ValueError: bad step")
    assert rows[2].endswith("because of rank 1")


def test_a_second_rank_that_failed_by_itself_shows_its_own_error(own_folders: Path) -> None:
    made = failed(own_folders, 3)
    made.fail(0, "RuntimeError", "Connection reset by peer", "", BEGAN + 6)
    made.fail(2, "KeyError", "'b'", "", BEGAN + 7)
    made.end(State.FAILED)
    rows = [line for line in summary(made).split("\n") if " failed " in line]
    assert rows[0].endswith("because of rank 1")
    assert rows[1].endswith("ValueError: bad step")
    assert rows[2].endswith("KeyError: 'b'")


@pytest.mark.parametrize("same", [True, False])
def test_a_thousand_ranks_stay_short(own_folders: Path, same: bool) -> None:
    made = RunMaker(own_folders, 1000)
    for rank in range(0, 1000):
        made.event(rank, "result", repr="same" if same else f"result {rank}", bytes=3, error=None)
    made.set_rank(500, state=State.FAILED, exit_code=7, ended=BEGAN + 1)
    made.end(State.FAILED)
    text = summary(made)
    assert len(text.split("\n")) < 20
    assert re.search(r"^500 +failed", text, re.MULTILINE)
    assert "0-499" in text
    html = Run(made.folder)._repr_html_()
    assert html is not None
    assert len(html.encode()) < 60_000


def test_a_running_run_says_how_to_come_back(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    assert f"To follow it: `jupyter dist attach {made.folder.id}`" in summary(made)


class _Checker(HTMLParser):
    """Every element is closed, and none of them does anything."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.open.append(tag)
        self.tags.add(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"&"


def test_what_ranks_write_is_text_in_the_html(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    made.metric(0, 1, {EVIL: 1.0})
    made.metric(0, 2, {EVIL: 2.0})
    made.event(0, "result", repr=EVIL, bytes=1, error=None)
    made.event(1, "result", repr="x", bytes=None, error=EVIL)
    made.print(0, EVIL)
    made.set_rank(1, host=EVIL)
    made.fail(0, EVIL, EVIL, EVIL)
    made.end(State.FAILED, reason=EVIL)
    html = Run(made.folder)._repr_html_()
    assert html is not None
    checker = _Checker()
    checker.feed(html)
    assert checker.open == []
    assert not checker.tags & {"script", "img", "style", "link", "iframe"}
    assert "&lt;script&gt;" in html


def test_the_html_stays_small_whatever_there_is(own_folders: Path) -> None:
    made = RunMaker(own_folders, 8)
    for rank in range(8):
        lines = [
            json.dumps(
                {
                    "seq": n,
                    "time": BEGAN + n,
                    "kind": "metric",
                    "step": n,
                    "values": {f"metric number {m} {'x' * 40}": math.sin(n * m + rank) for m in range(20)},
                }
            )
            for n in range(300)
        ]
        made.rank(rank).events.write_text("\n".join(lines) + "\n")
        made.event(rank, "result", repr="<>" * 5000, bytes=1, error=None)
    made.fail(1, "E", "m" * 20_000, ("<line>\n" * 40) + "&" * 50_000)
    made.end(State.FAILED)
    html = Run(made.folder)._repr_html_()
    assert html is not None
    assert len(html.encode()) < 60_000
    drawn = html.count("<svg")
    assert 0 < drawn < 20
    # A metric that is neither in the table of 12 nor drawn counts once.
    assert f"… {20 - min(drawn, 12)} more metrics: " in html
    checker = _Checker()
    checker.feed(html)
    assert checker.open == []


def test_what_is_left_out_is_named_by_a_call_that_works_in_each_notebook(own_folders: Path) -> None:
    made = RunMaker(own_folders, 60)
    for rank in range(60):
        made.set_rank(rank, state=State.FAILED, exit_code=rank + 1, ended=BEGAN + rank)
        made.metric(rank, 1, {f"metric {number}": float(number) for number in range(20)})
    made.end()
    call = f'jupyter_dist.attach("{made.folder.id}")'
    text = summary(made)
    assert re.search(rf"… \d+ more ranks: {re.escape(call)}\.status\.ranks\n", text)
    assert f"… 8 more metrics: {call}.metrics\n" in text
    page = Run(made.folder)._repr_html_() or ""
    assert f"<code>{escape(call)}.status.ranks</code>" in page


_OF_A_RUN = "|".join(name for name in dir(Run) if not name.startswith("_"))


def test_no_text_names_a_variable_that_the_user_may_lack() -> None:
    named = []
    package = Path(jupyter_dist.__file__).parent
    for path in sorted({*package.rglob("*.py")} - {*package.glob("conformance/*.py")}):
        tree = ast.parse(path.read_text())
        documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        named += [
            (path.name, node.lineno, node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents
            if re.search(rf"(?<![\w.])run\.({_OF_A_RUN})\b", node.value)
        ]
    assert named == []


def test_a_saved_notebook_keeps_the_displays_of_ranks_that_joined(own_folders: Path) -> None:
    """An elastic run may have more ranks than it began with."""
    made = RunMaker(own_folders, 1)
    make_attempt(made.folder, 0, 2)
    made.write(ranks=tuple(RankState(rank, State.RUNNING, host="node1", started=BEGAN) for rank in range(2)))
    for rank in range(2):
        made.event(rank, "display", BEGAN, data={"text/html": {"text": f"<b>of {rank}</b>"}}, result=True)
    made.end()
    html = Run(made.folder)._repr_html_() or ""
    assert "<b>of 0</b>" in html
    assert "[1] show something else" in html
    assert "[0]</div>" in html
