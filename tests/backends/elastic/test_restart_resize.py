"""Ranks that all begin anew when their hosts change: what is done, with hosts that are only said to be there.

Real ones, and a real torch in them, are in test_kubeflow_elastic.py.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.backends.elastic import restart_resize
from jupyter_dist.backends.elastic.restart_resize import RestartResize
from jupyter_dist.backends.elastic.rounds import Elastic
from jupyter_dist.backends.ranks.placement import RankEnvironmentOptions
from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts.facts import HostFacts, HostProcess
from jupyter_dist.hosts.fleet import FleetPoll
from jupyter_dist.hosts.start import Start
from jupyter_dist.job import Job, Poll, State


class Hosts:
    """In place of an elastic Fleet. What is started runs until a test says otherwise."""

    def __init__(self) -> None:
        self.members: list[Any] = []
        self.processes: dict[int | None, HostProcess] = {}
        self.started: list[Start] = []
        self.attempt = -1

    def add(self, name: str, slots: int, *, ports: int = 1, resume: bool = False) -> None:
        about: dict[str, Any] = {"name": name, "node": len(self.members), "slots": slots, "cores": 1}
        about |= {"hostname": name, "machine": name, "address": f"10.0.0.{len(name)}", "python": "python3"}
        about |= {"client": None, "interface": None, "version": "", "gpus": (), "stage": "/", "home": "/"}
        facts = HostFacts(**about, free_disk=0)
        member = SimpleNamespace(name=name, slots=slots, facts=facts, failed=None, lost=None, away=None)
        member.settled, member.final, member.signal = True, False, lambda *, kill: None
        self.members.append(member)

    def give_up(self, gone: Mapping[str, str]) -> None:
        for member in self.members:
            member.lost = gone.get(member.name)

    def facts(self, name: str) -> HostFacts:
        found: HostFacts = next(member.facts for member in self.members if member.name == name)
        return found

    def ask_for_ports(self, counts: Mapping[str, int]) -> None:
        self.counts = counts

    def ports(self, name: str) -> tuple[int, ...]:
        return tuple(range(1, 1 + self.counts[name]))

    def start(self, attempt: int, starts: Sequence[Start]) -> None:
        self.attempt, self.started = attempt, list(starts)
        self.expect(attempt, starts)

    def expect(self, attempt: int, starts: Sequence[Start]) -> None:
        self.processes = {
            each.rank: HostProcess(
                f"{attempt}.{each.rank}", each.host, each.rank, attempt, pid=1, started=1.0
            )
            for each in starts
        }

    def end(self, rank: int, code: int, **more: Any) -> None:
        changes = {"ended": time.time(), "exit_code": code, **more}
        self.processes[rank] = dataclasses.replace(self.processes[rank], **changes)

    def stop(self, *, kill: bool) -> None:
        for rank, process in self.processes.items():
            if not process.over and rank is not None:
                # Of two, one misses the other before it is told itself.
                self.end(rank, 143 if rank else 1, told=rank != 0)

    def poll(self) -> FleetPoll:
        return FleetPoll(ready=True, processes=tuple(self.processes.values()))


class Run:
    """One that may have between 1 and 3 ranks, begun with 2."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.folder, self.hosts = RunFolder(folder), Hosts()
        self.there, self.gone = ["a", "bb"], dict[str, str]()
        self.limits = Elastic(min_np=1, max_np=3, **limits)
        self.job = Job("x", "kubernetes", 2, 0.0, "/", "python3", "")
        self.ranks = self.made()
        self.seen: set[tuple[int | None, State]] = set()

    def made(self, attempt: int = 0) -> RestartResize:
        return RestartResize(
            self.job,
            self.folder,
            attempt,
            self.hosts,  # type: ignore[arg-type]
            limits=self.limits,
            wanted=RankEnvironmentOptions(),
            hosts=lambda: [{"name": name, "slots": 1} for name in self.there],
            gone=lambda: self.gone,
        )

    def until(self, attempt: int) -> Poll:
        """The poll in which the ranks of an attempt are there."""
        for _ in range(20):
            poll = self.ranks.poll(None)
            self.seen |= {(poll.attempt, rank.state) for rank in poll.ranks}
            if self.hosts.attempt == attempt or poll.state.ended:
                return self.ranks.poll(None)
        pytest.fail(f"attempt {attempt} has not come: {poll}")

    def sizes(self) -> list[str]:
        return [start.env["WORLD_SIZE"] for start in self.hosts.started]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_QUIET_S", "_GROW_S", "_NOTICED_S"):
        monkeypatch.setattr(restart_resize, name, 0.0)


def test_each_change_of_the_hosts_is_an_attempt_with_as_many_ranks_as_have_a_place(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert [rank.host for rank in run.until(0).ranks] == ["a", "bb"]
    run.gone = {"a": "it was preempted"}
    poll = run.until(1)
    assert (poll.attempt, poll.state, poll.replaces) == (1, State.RUNNING, True)
    assert [(rank.host, rank.state) for rank in poll.ranks] == [("bb", State.RUNNING)]
    run.there += ["a.1", "dddd", "eeeee"]
    run.until(2)
    assert [start.host for start in run.hosts.started] == ["bb", "a.1", "dddd"], "who trained comes first"
    assert run.sizes() == ["3", "3", "3"]
    assert (1, State.STOPPED) in run.seen
    assert (1, State.FAILED) not in run.seen, "nothing has failed where others have come"
    for rank in range(3):
        run.hosts.end(rank, 0)
    assert run.ranks.poll(None).state is State.SUCCEEDED


def test_a_rank_that_fails_by_itself_is_the_end_and_one_that_fails_of_a_lost_host_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path)
    run.until(0)
    monkeypatch.setattr(restart_resize, "_NOTICED_S", 1e9)
    run.hosts.end(1, 1)
    assert (run.ranks.poll(None).state, run.ranks.poll(None).replaces) == (State.RUNNING, True)
    run.gone = {"a": "its node is gone"}
    assert [rank.host for rank in run.until(1).ranks] == ["bb"]
    run.hosts.end(0, 1)
    assert run.ranks.poll(None).state is State.RUNNING, "its host may be lost, for all that is known"
    monkeypatch.setattr(restart_resize, "_NOTICED_S", -1.0)
    poll = run.ranks.poll(None)
    assert (poll.state, poll.replaces, poll.ranks[0].state) == (State.FAILED, False, State.FAILED)


def test_rank_0_stays_where_it_is_when_a_host_is_back_that_was_silent(tmp_path: Path) -> None:
    """For what it has kept there."""
    run = Run(tmp_path)
    run.until(0)
    run.hosts.members[0].away = time.time() - 60
    assert [rank.host for rank in run.until(1).ranks] == ["bb"]
    run.hosts.members[0].away = None
    assert [rank.host for rank in run.until(2).ranks] == ["bb", "a"]


def test_it_ends_without_hosts_and_after_too_many_changes(tmp_path: Path) -> None:
    run = Run(tmp_path / "time", timeout_s=0.0)
    run.until(0)
    run.gone = {"a": "it was preempted", "bb": "as well"}
    poll = run.until(1)
    assert poll.state is State.FAILED
    assert "0 of 1 ranks have a place after 0 s (--elastic-timeout)" in str(poll.detail)
    run = Run(tmp_path / "limit", reset_limit=0)
    run.until(0)
    run.gone = {"a": "it was preempted"}
    assert "the ranks have changed more than 0 times (--reset-limit): host a was lost" in str(
        run.until(1).detail
    )


def test_another_supervisor_goes_on_with_the_round_that_there_is(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.until(0)
    run.gone = {"a": "it was preempted"}
    run.until(1)
    run.hosts = Hosts()
    run.ranks = run.made()
    assert run.ranks.recall()
    poll = run.ranks.poll(None)
    assert (poll.attempt, [rank.host for rank in poll.ranks]) == (1, ["bb"])
    assert run.hosts.started == [], "nothing is started twice"
    run.there.append("ccc")
    run.until(2)
    assert run.sizes() == ["2", "2"]
