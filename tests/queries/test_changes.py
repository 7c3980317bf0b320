"""How the news that a rank has written travels: who hears of it, what comes along, and when nobody waits."""

from __future__ import annotations

import math
import select
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist import queries
from jupyter_dist.queries.logs import merged_log
from jupyter_dist.record.file_changes import FileChanges
from jupyter_dist.supervise import log_index
from jupyter_dist.supervise.log_index import LogIndexWriter
from jupyter_dist.worker.output import time_index
from tests.rigs.run_maker import BEGAN, RunMaker


def is_heard(descriptor: int | None, within_s: float = 10.0) -> bool:
    assert descriptor is not None
    return bool(select.select([descriptor], [], [], within_s)[0])


def test_changes_are_heard_once_or_always(tmp_path: Path) -> None:
    changes, file, folder = FileChanges(), tmp_path / "file", tmp_path / "folder"
    file.write_text("")
    folder.mkdir()
    assert changes.watch(file, once=True)
    assert changes.watch(folder)
    assert not changes.watch(tmp_path / "none")
    for text in "ab":
        file.write_text(text)
    assert is_heard(changes.fileno())
    assert changes.take() == {str(file)}
    file.write_text("c")
    assert not is_heard(changes.fileno(), 0.0)
    for name in "ab":
        (folder / ".new").write_text(name)
        (folder / ".new").rename(folder / name)
        assert is_heard(changes.fileno())
        assert changes.take() == {str(folder)}
    (folder / "empty").touch()
    assert not is_heard(changes.fileno(), 0.0)
    assert changes.watch(folder, touched=True)
    for name in ("empty", "more"):
        (folder / name).touch()
        assert is_heard(changes.fileno())
        assert changes.take() == {str(folder)}
    changes.forget(folder)
    (folder / "c").write_text("c")
    assert changes.take() == set()
    changes.close()
    changes.close()
    assert changes.fileno() is None


def test_where_nothing_can_be_heard_files_are_looked_at(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(log_index, "_REST", 0.0)  # else a slow look lengthens the pause
    deaf = FileChanges()
    assert (deaf.fileno(), deaf.watch(own_folders), deaf.take()) == (None, False, set())
    run = RunMaker(own_folders)
    index = LogIndexWriter(run.folder, 0, deaf)
    run.print(0, "line\n")
    assert index.tick(BEGAN, 2)
    assert (index.heard, index.pause_s) == (None, 0.02)


def test_a_line_wakes_who_notes_its_time(own_folders: Path) -> None:
    run = RunMaker(own_folders)
    for rank in range(2):
        run.print(rank, "")
    index = LogIndexWriter(run.folder, 0)
    assert not index.tick(BEGAN, 2)
    assert not run.folder.moment.exists(), "nothing new"
    assert index.heard is not None
    descriptor, rest_s = index.heard
    assert rest_s <= 0.01
    assert not is_heard(descriptor, 0.0)
    run.print(1, "line\n")
    assert is_heard(descriptor)
    assert index.tick(BEGAN + 1, 2)
    assert not is_heard(descriptor, 0.0), "what it writes itself does not wake it"
    assert time_index.complete_until(run.folder.moment) == BEGAN + 1
    run.event(0, "note", text="x")
    assert index.tick(BEGAN + 2, 2), "files that come later are heard as well"
    run.event(0, "note", text="y")
    assert is_heard(descriptor)
    run.print(0, "x" * 100_000)
    assert index.tick(BEGAN + 3, 2)
    assert index.pause_s == math.inf, "nobody reads along with a flood"
    assert not index.heard


def test_what_comes_from_a_host_is_news_but_no_moment(own_folders: Path) -> None:
    """Its clock is another one."""
    run = RunMaker(own_folders)
    time_index.append(run.rank(0).times, (0, BEGAN))
    run.print(0, "line\n")
    assert LogIndexWriter(run.folder, 0).tick(BEGAN + 2, 2)
    assert run.folder.moment.exists()
    assert time_index.complete_until(run.folder.moment) == 0


@pytest.mark.parametrize("said", [True, False])
def test_nobody_waits_for_a_moment_that_is_complete(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch, said: bool
) -> None:
    run = RunMaker(own_folders)
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, time=lambda: BEGAN + 1, monotonic=time.monotonic)
    monkeypatch.setattr(merged_log, "time", clock)
    run.print(0, "line\n", BEGAN + 1)
    if said:
        time_index.note_complete(run.folder.moment, BEGAN + 1)
    assert queries.log_page(run.folder.id)["total"] == 1
    assert bool(waited) is not said


def tails(watch: Any) -> list[dict[str, Any]]:
    return [tail for message in watch.poll() for tail in message.get("tails", ())]


def numbers(tail: dict[str, Any]) -> list[int]:
    return [line["n"] for line in tail["page"]["lines"]]


def test_only_what_is_new_comes_along(own_folders: Path) -> None:
    run = RunMaker(own_folders)
    watch: Any = queries.RunChanges()
    of = {"id": run.folder.id, "rank": None, "launcher": None}
    watch.set([run.folder.id], [of, {**of, "rank": 1}, {**of, "rank": 7}, {**of, "rank": "x"}])
    run.print(0, "one\ntwo\n", BEGAN + 1)
    of_all, of_one = tails(watch)
    assert (numbers(of_all), of_all["page"]["total"], of_one["rank"], numbers(of_one)) == ([0, 1], 2, 1, [])
    run.print(0, "three\npart", BEGAN + 1.1)
    of_all, _ = tails(watch)
    assert (of_all["page"]["start"], numbers(of_all)) == (2, [2])
    assert [part["text"] for part in of_all["page"]["partial"]] == ["part"]
    run.print(1, "two\n", BEGAN + 1.2)
    of_all, of_one = tails(watch)
    assert [line.get("ranks") for line in of_all["page"]["lines"]] == [[0, 1], [0]], "a row has gained a rank"
    assert numbers(of_one) == [0]
    watch.set([run.folder.id], [of])
    run.print(1, "x" * 19_000 + "\n" + "y\n" * 300, BEGAN + 1.3)
    (of_all,) = tails(watch)
    assert len(numbers(of_all)) == 100, "the last ones"
    run.print(1, ("x" * 19_000 + "\n") * 4, BEGAN + 1.4)
    assert tails(watch) == [], "too much to be told unasked"
    run.next_attempt()
    run.print(0, "anew\n", BEGAN + 9)
    (of_all,) = tails(watch)
    assert numbers(of_all) == [0]
    run.end()
    (of_all,) = tails(watch)
    assert of_all["page"]["complete"]


def test_lines_of_a_log_that_a_page_begins_to_follow_come_unasked(own_folders: Path) -> None:
    run = RunMaker(own_folders)
    run.print(0, "one\n", BEGAN + 1)
    watch: Any = queries.RunChanges([run.folder.id])
    assert tails(watch) == []
    of = {"id": run.folder.id, "rank": 0, "launcher": None}
    watch.set([run.folder.id], [of])
    (tail,) = tails(watch)
    assert numbers(tail) == [0]
    watch.set([run.folder.id], [of])
    assert tails(watch) == []
