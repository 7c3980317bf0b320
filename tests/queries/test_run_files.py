"""Launchers' logs and files to download: read like the ranks' logs, and nothing else of the disk is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jupyter_dist import queries
from jupyter_dist.errors import InputError
from jupyter_dist.job import RankState, State
from jupyter_dist.queries.answers.logs import LogPage
from jupyter_dist.showing.run import Run
from tests.rigs.run_maker import RunMaker
from tests.rigs.server_process import Server

TIMELINE = b'[{"name": "allreduce"}]' * 100_000
NO_NAMES = [
    "",
    "..",
    "../job.json",
    "../../outside",
    "./timeline.json",
    "/etc/passwd",
    "..\\job.json",
    "timeline.json\0",
    "timeline.json/",
    "link.json",
    "folder",
    "pipe",
    ".hidden",
    'a"b.json',
    "über.json",
    "nothing.json",
]


@pytest.fixture
def make(own_folders: Path) -> Callable[..., RunMaker]:
    return lambda world_size=2, **job: RunMaker(own_folders, world_size, **job)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server")).start()
    yield started
    started.stop()


def launcher_says(run: RunMaker, name: str, text: str) -> None:
    with (run.folder.path / "attempts" / "0" / f"{name}.log").open("a") as file:
        file.write(text)


def with_files(run: RunMaker) -> RunMaker:
    files = run.folder.files
    files.mkdir()
    (files / "timeline.json").write_bytes(TIMELINE)
    (files / "link.json").symlink_to(run.folder.job)
    (files / "folder").mkdir()
    os.mkfifo(files / "pipe")
    for name in (".hidden", 'a"b.json', "über.json"):
        (files / name).write_text("not offered")
    return run


def texts(found: LogPage) -> list[str]:
    return [line["text"] for line in found["lines"]]


def test_a_launcher_has_a_log_of_its_own(make: Callable[..., RunMaker]) -> None:
    run = make()
    assert queries.run(run.folder.id)["launchers"] == []
    launcher_says(run, "launcher-h1", "starting 2 ranks\nslots: 2\nunfin")
    launcher_says(run, "launcher-h2", "here, too\n")
    run.print(0, "of a rank\n", run.status.created)
    id_ = run.folder.id
    assert queries.run(id_)["launchers"] == ["launcher-h1", "launcher-h2"]
    found = queries.log_page(id_, launcher="launcher-h1")
    assert texts(found) == ["starting 2 ranks", "slots: 2"]
    assert [line["rank"] for line in found["lines"]] == [None, None]
    assert (found["total"], found["complete"]) == (2, False)
    assert [part["text"] for part in found["partial"]] == ["unfin"]
    assert texts(queries.log_page(id_, launcher="launcher-h2")) == ["here, too"]
    assert texts(queries.log_page(id_)) == ["of a rank"]
    assert queries.log_search(id_, query="SLOTS", launcher="launcher-h1")["hits"] == [1]
    assert queries.log_search(id_, query="slo+ts", regex=True, launcher="launcher-h1")["hits"] == [1]
    whole = b"".join(queries.log_download(id_, launcher="launcher-h1"))
    assert whole == b"starting 2 ranks\nslots: 2\nunfin"
    run.end()
    assert texts(queries.log_page(id_, launcher="launcher-h1"))[-1] == "unfin"


@pytest.mark.parametrize(
    "name", ["launcher", "launcher-h3", "../../job", "ranks/0/output", "launcher.log", ""]
)
def test_no_other_file_is_a_launcher_log(make: Callable[..., RunMaker], name: str) -> None:
    run = make()
    launcher_says(run, "launcher-h1", "x\n")
    with pytest.raises(InputError, match="no launcher"):
        queries.log_page(run.folder.id, launcher=name)
    with pytest.raises(InputError, match="no launcher"):
        queries.log_download(run.folder.id, launcher=name)


def test_a_launcher_is_none_of_the_ranks(make: Callable[..., RunMaker]) -> None:
    run = make()
    launcher_says(run, "launcher", "x\n")
    with pytest.raises(InputError, match="either a rank or a launcher"):
        queries.log_page(run.folder.id, rank=1, launcher="launcher")


def test_views_are_told_of_launchers_and_files(make: Callable[..., RunMaker]) -> None:
    run = make()
    watch: Any = queries.RunChanges([run.folder.id])
    told: dict[str, Any] = {change["kind"]: change for change in watch.poll()}
    assert told["log"]["launchers"] == {}
    assert watch.poll() == []
    # One after the other: each alone is news.
    launcher_says(run, "launcher", "one\ntwo\n")
    run.write(heartbeat=run.status.heartbeat + 1)  # as a supervisor does all the time
    told = {change["kind"]: change for change in watch.poll()}
    assert told["run"]["run"]["launchers"] == ["launcher"]
    assert told["run"]["run"]["files"] == []
    assert told["log"]["launchers"] == {"launcher": 2}
    with_files(run)
    run.write(heartbeat=run.status.heartbeat + 1)
    told = {change["kind"]: change for change in watch.poll()}
    assert told["run"]["run"]["launchers"] == ["launcher"]
    assert told["run"]["run"]["files"] == [{"name": "timeline.json", "bytes": len(TIMELINE)}]
    run.write(heartbeat=run.status.heartbeat + 1)
    assert [change for change in watch.poll() if change["kind"] == "run"] == [], "a heartbeat is no news"
    launcher_says(run, "launcher", "three\n")
    assert [change["launchers"] for change in watch.poll()] == [{"launcher": 3}]


def test_files_are_downloaded(make: Callable[..., RunMaker]) -> None:
    run = with_files(make())
    assert b"".join(queries.file_download(run.folder.id, "timeline.json")) == TIMELINE


@pytest.mark.parametrize("name", NO_NAMES)
def test_nothing_but_the_offered_files_is(make: Callable[..., RunMaker], name: str) -> None:
    run = with_files(make())
    with pytest.raises(InputError, match="no file"):
        queries.file_download(run.folder.id, name)


def test_the_server_sends_them_as_files(server: Server) -> None:
    run = with_files(RunMaker(server.runs, 1))
    launcher_says(run, "launcher", "<script>\n")
    path = f"/runs/{run.folder.id}/files/download?file="
    answer = server.call("GET", path + "timeline.json")
    assert answer.status == 200
    assert answer.body == TIMELINE
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{run.folder.id}-timeline.json"'
    for name in NO_NAMES:
        if "\0" in name:
            continue  # the web framework drops it, and the rest is a name
        refused = server.call("GET", path + quote(name, safe=""))
        assert refused.status == 400, name
        assert b"not offered" not in refused.body
    log = server.call("GET", f"/runs/{run.folder.id}/log/download?launcher=launcher")
    assert log.body == b"<script>\n"
    assert log.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert log.headers["Content-Disposition"] == f'attachment; filename="{run.folder.id}-launcher.log"'


def test_a_rank_that_joined_is_shown_like_the_others(make: Callable[..., RunMaker]) -> None:
    run = make(2)
    run.print(1, "of the second\n", run.status.created)
    id_ = run.folder.id
    assert queries.log_page(id_)["total"] == 1
    with pytest.raises(InputError, match="ranks 0 to 1"):
        queries.log_page(id_, rank=2)
    assert queries.curves(id_)["curves"] == []
    (run.folder.rank(0, 2).path).mkdir()
    run.write(ranks=(*run.status.ranks, RankState(2, State.RUNNING, pid=1002, host="node2")))
    run.print(2, "of the third\n", run.status.created)
    run.metric(2, 0, {"loss": 0.5})
    run.event(2, "progress", id=0, n=3, total=9, desc="")
    assert [rank["rank"] for rank in queries.run(id_)["ranks"]] == [0, 1, 2]
    assert [bar["rank"] for bar in queries.run(id_)["progress_by_rank"]] == [2]
    assert texts(queries.log_page(id_, rank=2)) == ["of the third"]
    assert sorted(texts(queries.log_page(id_))) == ["of the second", "of the third"]
    (curve,) = queries.curves(id_)["curves"]
    assert [rank["rank"] for rank in curve["ranks"]] == [2]
    told: dict[str, Any] = {change["kind"]: change for change in queries.RunChanges([id_]).poll()}
    assert told["log"]["ranks"] == {"0": 0, "1": 1, "2": 1}
    run.event(2, "result", repr="3", bytes=None, error=None)
    run.end()
    assert queries.results(id_)[0]["ranks"] == [2]
    ended = Run(run.folder)
    assert (ended.log(2), len(ended.results)) == ("of the third\n", 3)
    assert "3 ranks" in str(ended._summary())
