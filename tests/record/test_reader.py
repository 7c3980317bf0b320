"""Reading run folders: whole lines in order, final states with all lines, and folders that are broken."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_dist import folder as folders
from jupyter_dist.errors import RunNotFound
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, RankState, State, Status, Supervisor
from jupyter_dist.record import reader
from jupyter_dist.record.cursor import Tail
from jupyter_dist.text.log_rendering import _BEGIN
from jupyter_dist.worker.output import time_index


def make(root: Path, world_size: int = 2) -> RunFolder:
    folder = folders.create(root, folders.new_id(), world_size)
    job = Job(folder.id, "local", world_size, time.time(), "/", "python", "1")
    folders.write_json(folder.job, job.to_json())
    return folder


def me() -> Supervisor:
    ticks = reader.start_ticks(os.getpid())
    assert ticks is not None
    return Supervisor(os.getpid(), ticks, socket.gethostname(), reader.boot_id())


def set_state(
    folder: RunFolder, state: State, attempt: int = 0, world_size: int = 2, **changes: object
) -> None:
    ranks = tuple(RankState(rank, state) for rank in range(world_size))
    status = Status(folder.id, state, attempt, heartbeat=time.time(), supervisor=me(), ranks=ranks)
    folders.write_json(folder.state, dataclasses.replace(status, **changes).to_json())  # type: ignore[arg-type]


def write(folder: RunFolder, rank: int, data: bytes, attempt: int = 0) -> None:
    with folder.rank(attempt, rank).output.open("ab") as file:
        file.write(data)


def test_lines_come_whole_and_the_unfinished_one_apart(own_folders: Path) -> None:
    folder = make(own_folders)
    set_state(folder, State.RUNNING)
    write(folder, 0, b"one\ntw")
    tail = Tail(folder)
    batch = tail.poll()
    assert [(line.rank, line.text) for line in batch.lines] == [(0, "one")]
    assert batch.partial == {0: "tw"}
    write(folder, 0, b"o\n")
    assert [line.text for line in tail.poll().lines] == ["two"]
    write(folder, 0, b"no newline")
    set_state(folder, State.SUCCEEDED)
    batch = tail.poll()
    assert [line.text for line in batch.lines] == ["no newline"]
    assert batch.partial == {}
    assert tail.poll().lines == []


def test_a_cursor_goes_on_where_another_reader_stood(own_folders: Path) -> None:
    folder = make(own_folders)
    set_state(folder, State.RUNNING)
    write(folder, 1, b"a\nb\n")
    first = Tail(folder)
    first.poll()
    cursor = json.loads(json.dumps(first.cursor))
    write(folder, 1, b"c\n")
    assert [line.text for line in Tail(folder, cursor=cursor).poll().lines] == ["c"]


def test_ranks_are_interleaved_by_the_time_index(own_folders: Path) -> None:
    folder = make(own_folders)
    set_state(folder, State.SUCCEEDED)
    for rank, lines in ((0, [(1.0, b"a\n"), (3.0, b"c\n")]), (1, [(2.0, b"b\n"), (4.0, b"d\n")])):
        size = 0
        for when, data in lines:
            write(folder, rank, data)
            size += len(data)
            with folder.rank(0, rank).times.open("ab") as file:
                file.write(time_index.RECORD.pack(size, when))
    lines_read = Tail(folder).poll().lines
    assert [(line.time, line.text) for line in lines_read] == [(1.0, "a"), (2.0, "b"), (3.0, "c"), (4.0, "d")]


def test_following_for_hours_keeps_no_times_of_what_was_read(own_folders: Path) -> None:
    folder = make(own_folders)
    set_state(folder, State.RUNNING)
    tail = Tail(folder)
    size, times = 0, []
    for when in range(1, 100):
        write(folder, 0, b"a\nb\nc")
        size += 5
        with folder.rank(0, 0).times.open("ab") as file:
            file.write(time_index.RECORD.pack(size, when))
        times += [line.time for line in tail.poll().lines]
    # The line that is finished later was begun with the letter before.
    assert times == [1.0, 1.0, *(t for when in range(2, 100) for t in (when - 1, when))]
    assert len(tail._tails[0, 0]._times._offsets) <= 1


def test_a_limit_leaves_out_the_older_part_and_counts_it(own_folders: Path) -> None:
    folder = make(own_folders)
    set_state(folder, State.RUNNING)
    data = b"".join(b"line %d\n" % number for number in range(10_000))
    write(folder, 0, data)
    tail = Tail(folder, tail_bytes=1000)
    batch = tail.poll()
    assert batch.lines[-1].text == "line 9999"
    assert batch.skipped + sum(len(line.text) + 1 for line in batch.lines) == len(data)
    assert batch.skipped >= len(data) - 1000


def test_drain_reads_more_than_one_poll_takes(own_folders: Path) -> None:
    folder = make(own_folders)
    write(folder, 0, b"x" * 99 + b"\n")
    write(folder, 0, (b"y" * 999 + b"\n") * 9_000)
    write(folder, 0, b"z" * (3 << 20))
    set_state(folder, State.SUCCEEDED)
    texts = [line.text for batch in Tail(folder).drain() for line in batch.lines]
    assert [len(text) for text in texts[:2]] == [99, 999]
    assert sum(len(text) for text in texts) == 99 + 999 * 9_000 + (3 << 20)


def test_bytes_that_are_no_text_and_no_newlines_of_ours(own_folders: Path) -> None:
    folder = make(own_folders)
    set_state(folder, State.SUCCEEDED)
    write(folder, 0, b"\xff\x00a\x1eb\x0bc\r10%\r20%\n")
    assert [line.text for line in Tail(folder).poll().lines] == ["\ufffd\x00a\x1eb\x0bc\r10%\r20%"]


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=30), max_size=12))
def test_whatever_the_pieces_the_text_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    folder = make(tmp_path_factory.mktemp("runs"), 1)
    set_state(folder, State.RUNNING, world_size=1)
    tail = Tail(folder)
    lines = []
    for piece in pieces:
        write(folder, 0, piece)
        lines += tail.poll().lines
    set_state(folder, State.SUCCEEDED, world_size=1)
    for batch in tail.drain():
        lines += batch.lines
    whole = b"".join(pieces)
    expected = whole.removesuffix(b"\n").split(b"\n") if whole else []
    # The pieces matter where the bytes rewrite lines: see test_rendered_log.py.
    if not _BEGIN.search(whole):
        assert [line.text for line in lines] == [part.decode("utf-8", "replace") for part in expected]
    assert reader.output(folder, 0) == whole


def test_a_final_state_comes_with_all_lines(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank prints its last line and the run ends, both just before the state is read."""
    folder = make(own_folders)
    set_state(folder, State.RUNNING)
    real = reader.status

    def ends_before_we_look(place: RunFolder) -> Status:
        write(folder, 0, b"last words\n")
        set_state(folder, State.SUCCEEDED)
        return real(place)

    monkeypatch.setattr(reader, "status", ends_before_we_look)
    batch = Tail(folder).poll()
    # Had the log been read first, it would have been without the line.
    assert batch.status.state is State.SUCCEEDED
    assert [line.text for line in batch.lines] == ["last words"]


def test_attempts_follow_one_another(own_folders: Path) -> None:
    folder = make(own_folders)
    set_state(folder, State.RUNNING)
    write(folder, 0, b"first\n")
    tail = Tail(folder)
    assert [line.attempt for line in tail.poll().lines] == [0]
    write(folder, 0, b"cut off")
    folders.make_attempt(folder, 1, 2)
    write(folder, 0, b"second\n", attempt=1)
    set_state(folder, State.RUNNING, attempt=1)
    found = [(line.attempt, line.text) for batch in tail.drain() for line in batch.lines]
    assert sorted(found) == [(0, "cut off"), (1, "second")]


def test_events_that_are_torn_or_foreign_are_passed_over(own_folders: Path) -> None:
    folder = make(own_folders)
    set_state(folder, State.SUCCEEDED)
    good = {"seq": 0, "time": 1.0, "kind": "metric", "step": 0, "values": {"loss": "NaN"}}
    lines = [b"\xff\xfe", b"[]", b'"text"', b"{}", json.dumps(good).encode(), b'{"seq": 1, "time": 2.0, "ki']
    folder.rank(0, 0).events.write_bytes(b"\n".join(lines))
    assert [event.kind for event in reader.events(folder)] == ["metric"]
    assert [event.kind for event in Tail(folder).poll().events] == ["metric"]


class TestStatus:
    def test_running_while_its_supervisor_lives(self, own_folders: Path) -> None:
        folder = make(own_folders)
        set_state(folder, State.RUNNING, heartbeat=0.0)  # a laptop that slept: no matter
        assert reader.status(folder).state is State.RUNNING

    @pytest.mark.parametrize(
        "change",
        [{"pid": 2**22 - 1}, {"start_ticks": 1}, {"boot_id": "another"}],
        ids=lambda c: next(iter(c)),
    )
    def test_lost_when_its_supervisor_is_gone(self, own_folders: Path, change: dict[str, object]) -> None:
        folder = make(own_folders)
        gone = dataclasses.replace(me(), **change)  # type: ignore[arg-type]
        set_state(folder, State.RUNNING, supervisor=gone)
        found = reader.status(folder)
        assert found.state is State.LOST
        assert {rank.state for rank in found.ranks} == {State.LOST}

    def test_unwatched_when_the_ranks_go_on(self, own_folders: Path) -> None:
        folder = make(own_folders)
        gone = dataclasses.replace(me(), start_ticks=1)
        set_state(folder, State.RUNNING, supervisor=gone, handle={"hosts": []})
        found = reader.status(folder)
        assert found.state is State.UNWATCHED
        assert {rank.state for rank in found.ranks} == {State.RUNNING}
        assert "attach" in (found.reason or "")

    @pytest.mark.parametrize("looks", [0, 1])
    def test_a_supervisor_that_ends_between_two_looks_loses_no_run(
        self, own_folders: Path, monkeypatch: pytest.MonkeyPatch, looks: int
    ) -> None:
        """Its last state is written after the state was read. It may still live at the first look."""
        folder = make(own_folders)
        set_state(folder, State.RUNNING, supervisor=me())
        seen: list[Status] = []

        def ends_after_some_looks(status: Status) -> bool:
            seen.append(status)
            if len(seen) <= looks:
                return True
            set_state(folder, State.SUCCEEDED, supervisor=me())
            return False

        monkeypatch.setattr(reader, "supervised", ends_after_some_looks)
        found = reader.status(folder)
        assert (found.state, found.reason) == ((State.RUNNING if looks else State.SUCCEEDED), None)

    def test_ranks_that_work_while_others_are_started_are_running(self, own_folders: Path) -> None:
        folder = make(own_folders, 3)
        set_state(folder, State.PENDING, world_size=3)
        for rank, event in ((0, b'{"seq": 0, "time": 7.0, "kind": "started"}\n'), (2, b'{"seq": 0, "ti')):
            folder.rank(0, rank).events.write_bytes(event)
        found = reader.status(folder)
        assert (found.state, found.started) == (State.RUNNING, 7.0)
        assert [rank.state for rank in found.ranks] == [State.RUNNING, State.PENDING, State.PENDING]
        assert found.ranks[0].started == 7.0

    def test_a_final_state_needs_no_supervisor(self, own_folders: Path) -> None:
        folder = make(own_folders)
        set_state(folder, State.SUCCEEDED, supervisor=None)
        assert reader.status(folder).state is State.SUCCEEDED

    def test_on_another_host_the_heartbeat_counts(self, own_folders: Path) -> None:
        folder = make(own_folders)
        there = dataclasses.replace(me(), host="elsewhere")
        set_state(folder, State.RUNNING, supervisor=there)
        assert reader.status(folder).state is State.RUNNING
        set_state(folder, State.RUNNING, supervisor=there, heartbeat=time.time() - 60)
        assert reader.status(folder).state is State.RUNNING, "the clock there is slow, but the file is new"
        os.utime(folder.state, (time.time() - 60,) * 2)
        assert reader.status(folder).state is State.LOST

    def test_pending_before_the_supervisor_has_written_and_lost_if_it_never_does(
        self, own_folders: Path
    ) -> None:
        folder = make(own_folders)
        assert reader.status(folder).state is State.PENDING
        os.utime(folder.job, (0, time.time() - 60))
        assert reader.status(folder).state is State.LOST

    @pytest.mark.parametrize(
        "data", [b"", b"{", b"[]", b"null", b'{"state": "odd"}', b'{"ranks": 3}', b"\xff"]
    )
    def test_a_truncated_or_foreign_state_is_lost_with_a_reason(self, own_folders: Path, data: bytes) -> None:
        folder = make(own_folders)
        folder.state.write_bytes(data)
        found = reader.status(folder)
        assert found.state is State.LOST
        assert found.reason is not None
        assert "state.json cannot be read" in found.reason


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"null"])
def test_a_folder_without_a_readable_job_is_no_run(own_folders: Path, data: bytes) -> None:
    folder = make(own_folders)
    folder.job.write_bytes(data)
    with pytest.raises(RunNotFound, match=r"job\.json cannot be read"):
        reader.job(folder)
