"""How ranks stand by the files they write, and which of them failed by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_dist import folder
from jupyter_dist.backends.launchers.rank_files import RankFiles, judged
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import RankState, State


def exit_of(rank: int, when: float, code: int | None = None, signum: int | None = None) -> RankState:
    state = State.SUCCEEDED if code == 0 else State.FAILED
    return RankState(rank, state, 100 + rank, "h", exit_code=code, signal=signum, started=1.0, ended=when)


def running(rank: int) -> RankState:
    return RankState(rank, State.RUNNING, 100 + rank, "h", started=1.0)


F, S, T, L, R, P = State.FAILED, State.SUCCEEDED, State.STOPPED, State.LOST, State.RUNNING, State.PENDING


@pytest.mark.parametrize(
    ("ranks", "asked_at", "over", "states"),
    [
        pytest.param([exit_of(0, 3, 0), exit_of(1, 2, 0)], None, True, [S, S], id="all is well"),
        pytest.param([exit_of(0, 3, 143), exit_of(1, 2, 1)], None, True, [T, F], id="the first one failed"),
        pytest.param([exit_of(0, 3, 1), exit_of(1, 2, 1)], None, True, [F, F], id="both by themselves"),
        pytest.param([exit_of(0, 3, None, 9), exit_of(1, 2, None, 9)], None, True, [T, F], id="killed"),
        pytest.param([exit_of(0, 2, 143), running(1)], None, False, [F, R], id="told by somebody else"),
        pytest.param([exit_of(0, 2, 143), running(1)], None, True, [T, L], id="the silent one was first"),
        pytest.param([exit_of(0, 2, None, 9), running(1)], None, True, [F, T], id="the silent one was ended"),
        pytest.param([exit_of(0, 5, 143), exit_of(1, 6, 1)], 4.0, True, [T, T], id="asked to"),
        pytest.param([exit_of(0, 3, 1), exit_of(1, 6, 1)], 4.0, True, [F, T], id="one before it was asked"),
        pytest.param([exit_of(0, 3.9, None, 9)], 4.0, True, [T], id="by a clock that is a little slow"),
        pytest.param([exit_of(0, 3.9, 1)], 4.0, True, [F], id="just before it was asked"),
        pytest.param([running(0), running(1)], 4.0, True, [T, T], id="killed when asked"),
        pytest.param([running(0), running(1)], None, True, [L, L], id="nobody knows"),
        pytest.param([exit_of(0, 3, 1), RankState(1)], None, True, [F, T], id="never started"),
        pytest.param([running(0), RankState(1)], None, False, [R, P], id="on their way"),
    ],
)
def test_who_failed_by_itself(
    ranks: list[RankState], asked_at: float | None, over: bool, states: list[State]
) -> None:
    found = judged(ranks, asked_at, over=over)
    assert [rank.state for rank in found] == states
    assert all(rank.ended is not None for rank in found if rank.state.ended and rank.started is not None)


def started(place: RunFolder, rank: int, pid: int, when: float, host: str = "h", attempt: int = 0) -> None:
    folder.make_private(place.rank(attempt, rank).path)
    event = {"seq": 0, "time": when, "kind": "started", "pid": pid, "host": host}
    with place.rank(attempt, rank).events.open("a") as file:
        file.write(json.dumps(event) + "\n")


def ended(place: RunFolder, rank: int, pid: int, when: float, code: int) -> None:
    exit_ = {
        "pid": pid,
        "exit_code": code,
        "signal": None,
        "ended": when,
        "peak_memory_bytes": 1,
        "host": "h",
    }
    folder.write_json(place.rank(0, rank).path / "exit.json", exit_)


def test_ranks_are_known_from_their_files(own_folders: Path) -> None:
    place = folder.create(own_folders, folder.new_id(), 2)
    files = RankFiles(place, 2)
    assert [rank.state for rank in files.look(0)] == [P, P]
    started(place, 0, 10, 1.0)
    started(place, 1, 11, 1.5, "other")
    started(place, 2, 12, 2.0)
    found = files.look(0)
    assert [(r.rank, r.state, r.pid, r.host, r.local_rank) for r in found] == [
        (0, R, 10, "h", 0),
        (1, R, 11, "other", 0),
        (2, R, 12, "h", 1),
    ]
    ended(place, 0, 10, 3.0, 0)
    ended(place, 1, 11, 3.0, 4)
    assert [(r.state, r.exit_code) for r in files.look(0)] == [(S, 0), (F, 4), (R, None)]


def test_another_process_may_take_a_ranks_place(own_folders: Path) -> None:
    place = folder.create(own_folders, folder.new_id(), 1)
    files = RankFiles(place, 1, replaced=True)
    started(place, 0, 10, 1.0)
    ended(place, 0, 10, 2.0, 1)
    assert files.look(0)[0].state is F
    (place.rank(0, 0).path / "exit.json").unlink()
    assert files.look(0)[0].state is P, "its event is of the process before"
    started(place, 0, 20, 3.0)
    (found,) = files.look(0)
    assert (found.state, found.pid, found.ended) == (R, 20, None)
    ended(place, 0, 20, 4.0, 0)
    assert files.look(0)[0].state is S


def test_an_attempt_is_the_newest_once_a_rank_of_it_has_started(own_folders: Path) -> None:
    place = folder.create(own_folders, folder.new_id(), 1)
    files = RankFiles(place, 1)
    started(place, 0, 10, 1.0)
    folder.make_attempt(place, 1, 1)
    assert files.newest(0) == 0
    started(place, 0, 20, 2.0, attempt=1)
    assert files.newest(0) == 1
    assert files.look(1)[0].pid == 20
