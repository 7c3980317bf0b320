"""What the ranks of a session do before a cell, after a failure, and how a cell ends with its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, Poll, RankState, State
from jupyter_dist.supervise.session import cell
from jupyter_dist.supervise.session.cell import CellCaller
from jupyter_dist.supervise.session.cell_request import Request
from jupyter_dist.supervise.session.ranks import Ranks
from jupyter_dist.supervise.session.recovery import Recovery


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    job = Job("id", "local", 2, 0.0, str(tmp_path), "python", "1")
    made = Ranks(job, RunFolder(tmp_path), lambda link: None)
    for kept in made.all:
        kept.fresh, kept.group, kept.names = False, "gloo", {"x": "int"}
    return made


def request(tmp_path: Path, *ranks: int) -> Request:
    job = Job("id", "local", 2, 0.0, str(tmp_path), "python", "1")
    return Request(RunFolder(tmp_path), job, {}, (), frozenset(), {}, ranks)


def test_a_group_that_works_stays(ranks: Ranks, tmp_path: Path) -> None:
    first = Recovery(ranks).prepare(request(tmp_path, 0, 1))
    assert (first.reopen, first.env, first.notes, first.fresh) == (None, {}, (), ())


def test_a_broken_group_opens_once_on_another_port(ranks: Ranks, tmp_path: Path) -> None:
    recovery = Recovery(ranks)
    recovery.broken = True
    assert recovery.to_close(request(tmp_path, 0)) == ()  # the other rank would be missing
    assert recovery.to_close(request(tmp_path, 0, 1)) == (0, 1)
    some = recovery.prepare(request(tmp_path, 0))
    assert (some.reopen, recovery.broken) == (None, True)
    first = recovery.prepare(request(tmp_path, 0, 1))
    assert (first.reopen, [*first.env]) == ("gloo", ["MASTER_PORT", "HOROVOD_GLOO_RENDEZVOUS_PORT"])
    second = recovery.prepare(request(tmp_path, 0, 1))
    assert (second.reopen, second.env) == (None, first.env)


def test_each_rank_closes_a_broken_group_of_the_user_before_its_next_cell(
    ranks: Ranks, tmp_path: Path
) -> None:
    for kept in ranks.all:
        kept.group = None
    recovery = Recovery(ranks)
    recovery.broken = True
    one, both = request(tmp_path, 0), request(tmp_path, 0, 1)
    for _ in range(2):  # the first cell may be stopped before it begins
        assert recovery.to_close(both) == (0, 1)
        assert recovery.to_close(one) == (0,)
    recovery.prepare(one)
    assert (recovery.to_close(one), recovery.to_close(both)) == ((), (1,))
    recovery.prepare(both)
    assert recovery.to_close(both) == ()


def test_a_rank_that_keeps_a_broken_group_is_killed_once_and_not_while_its_host_is_away(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    link: Any = SimpleNamespace(send=told.append)
    for rank, kept in enumerate(ranks.all):
        kept.state, kept.link = RankState(rank, State.RUNNING), link
    killed, here = list[set[int]](), False
    monkeypatch.setattr(cell, "_CLOSE_LIMIT_S", 0.0)
    monkeypatch.setattr(ranks, "kill", lambda some: killed.append({*some}))
    monkeypatch.setattr(ranks.processes, "answers", lambda rank: here)
    recovery = Recovery(ranks)
    recovery.broken = True
    caller = CellCaller(request(tmp_path, 0, 1), ranks, lambda: None, -1, recovery.to_close, recovery.prepare)
    for here, expected in ((False, []), (True, [{0, 1}])):  # noqa: B007  a lambda above uses it
        for _ in range(4):
            assert caller.begin("poll", handle={}, cursor=None).failure is None
        assert killed == expected
    assert [message["do"] for message in told] == ["close", "close"]


class Cell:
    """A cell of connected ranks, and the messages that it sends to them."""

    def __init__(self, ranks: Ranks, request: Request, recovery: Recovery) -> None:
        self.messages: list[tuple[int, Mapping[str, Any]]] = []
        self.caller = CellCaller(request, ranks, lambda: None, -1, recovery.to_close, recovery.prepare)
        for rank, kept in enumerate(ranks.all):
            kept.state, kept.link = RankState(rank, State.RUNNING), _Link(rank, self.messages)

    def poll(self) -> Poll:
        call = self.caller.begin("poll", handle={}, cursor=None)
        assert call.failure is None
        found: Poll = call.value
        return found

    def begun(self) -> dict[int, Mapping[str, Any]]:
        """Return the message by rank with which the cell has begun."""
        return {rank: message for rank, message in self.messages if message["do"] == "cell"}


class _Link:
    def __init__(self, rank: int, messages: list[tuple[int, Mapping[str, Any]]]) -> None:
        self._rank, self._messages = rank, messages

    def send(self, message: Mapping[str, Any]) -> None:
        self._messages.append((self._rank, message))

    def close(self) -> None: ...


def test_a_cell_begins_when_its_ranks_have_closed_their_groups_for_it(ranks: Ranks, tmp_path: Path) -> None:
    """They may also answer to an earlier cell, which was stopped before it began."""
    recovery = Recovery(ranks)
    recovery.broken = True
    one = Cell(ranks, request(tmp_path, 0, 1), recovery)
    for of, expected in (("earlier", set()), (tmp_path.name, {0, 1})):
        one.poll()
        for rank in range(2):
            one.caller.answered(rank, {"of": of, "closed": True})
        one.poll()
        assert one.begun().keys() == expected


def test_a_rank_that_was_killed_before_its_cell_began_names_the_signal(ranks: Ranks, tmp_path: Path) -> None:
    one = Cell(ranks, request(tmp_path, 0, 1), Recovery(ranks))
    ranks.all[1].state = RankState(1, State.FAILED, signal=9)
    ended = one.poll()
    assert ended.state is State.FAILED
    assert [(rank.state, rank.signal) for rank in ended.ranks] == [(State.STOPPED, None), (State.FAILED, 9)]
    assert one.begun() == {}


@pytest.mark.parametrize("is_sent", [False, True])
def test_only_a_cell_that_its_ranks_have_received_breaks_their_group(
    ranks: Ranks, tmp_path: Path, is_sent: bool
) -> None:
    """A cell may be stopped while its files are on their way to the hosts."""
    one = Cell(ranks, request(tmp_path, 0, 1), Recovery(ranks))
    if is_sent:
        one.poll()
    one.caller.begin("stop", handle={}, kill=False)
    assert (one.caller.began, one.caller.failed) == (is_sent, is_sent)


@pytest.mark.parametrize("stopped", [False, True])
def test_ranks_are_lost_with_their_host(ranks: Ranks, tmp_path: Path, stopped: bool) -> None:
    one = Cell(ranks, request(tmp_path, 0, 1), Recovery(ranks))
    assert one.poll().state is State.RUNNING
    if stopped:
        one.caller.begin("stop", handle={}, kill=False)
    ranks.all[1].state = RankState(1, State.LOST)
    one.caller.died(1)
    assert [rank.state for rank in one.poll().ranks] == [State.RUNNING, State.LOST]


@pytest.mark.parametrize("some", [(0, 1), (1,)])
def test_the_first_rank_of_a_cell_gets_its_notes(ranks: Ranks, tmp_path: Path, some: tuple[int, ...]) -> None:
    ranks.lost[1], ranks.all[1].fresh = ["x"], True
    for kept in ranks.all:
        kept.group = None
    one = Cell(ranks, request(tmp_path, *some), Recovery(ranks))
    one.poll()
    first, *others = one.begun().values()
    (note,) = first["notes"]
    assert note.startswith("rank 1 is a fresh process. Gone with the earlier one: x.")
    assert not any(other["notes"] for other in others)


def test_a_fresh_rank_is_named_once_with_what_was_lost(ranks: Ranks, tmp_path: Path) -> None:
    recovery = Recovery(ranks)
    recovery.on_start.append("payload")
    ranks.all[1].assigned = {"x"}
    assert ranks.forget(1) == ["x"]
    assert recovery.loss() == (
        "rank 1 has ended, and with it x. The next cell starts a fresh process in its place."
    )
    ranks.all[1].fresh = True
    first = recovery.prepare(request(tmp_path, 0, 1))
    assert (first.fresh, first.on_start, len(first.notes)) == ((1,), ("payload",), 1)
    assert first.notes[0].startswith("rank 1 is a fresh process. Gone with the earlier one: x.")
    again = recovery.prepare(request(tmp_path, 0, 1))  # the rank has not called the functions yet
    assert (again.fresh, again.notes) == ((1,), ())
    ranks.all[1].fresh = False
    assert recovery.prepare(request(tmp_path, 0, 1)).fresh == ()


def test_a_name_belongs_to_the_ranks_while_one_of_them_has_it(ranks: Ranks) -> None:
    ranks.all[0].assigned, ranks.all[1].sent = {"x"}, {"x": "digest"}
    assert (ranks.owned(), ranks.sent([0, 1])) == ({"x"}, {})
    ranks.forget(0)
    assert ranks.owned() == set()
    assert ranks.sent([1]) == {"x": "digest"}
    assert ranks.sent([0, 1]) == {}


def test_a_rank_that_connects_while_the_others_end_is_asked_to_end_too(ranks: Ranks) -> None:
    told: list[int] = []
    links: list[Any] = [
        SimpleNamespace(send=lambda message, rank=rank: told.append(rank)) for rank in range(2)
    ]
    for kept in ranks.all:
        kept.state = RankState(kept.state.rank, State.RUNNING, 1)
    ranks.all[0].link = links[0]
    assert (ranks.ask_to_end(), told) == ([0], [0])
    ranks.all[1].link = links[1]
    assert (ranks.ask_to_end(), told) == ([0, 1], [0, 1])
    assert (ranks.ask_to_end(), told) == ([0, 1], [0, 1])
