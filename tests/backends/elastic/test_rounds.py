"""Which ranks train together in an elastic run: the table of its rounds, turn by turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from jupyter_dist.backends.elastic.rounds import Elastic, Rounds, RoundStep, SeatStatus, Stand
from jupyter_dist.job import State


@dataclass
class Run:
    """A run whose processes do what a test says. Time passes only when a test says so."""

    np: int
    limits: Elastic
    hosts: dict[str, int]
    seen: dict[int, SeatStatus] = field(default_factory=dict)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.rounds = Rounds(self.np, self.limits)

    def turn(self, **after: float) -> RoundStep:
        self.now += after.get("after", 0.1)
        turn = self.rounds.turn(self.hosts, self.seen, self.now)
        for seat in turn.starts:
            self.seen[seat] = SeatStatus()
        return turn

    def ask(self, *seats: int) -> None:
        for seat in seats:
            self.seen[seat] = SeatStatus(self.seen[seat].asked + 1)

    def end(self, seat: int, **how: bool) -> None:
        self.seen[seat] = SeatStatus(self.seen[seat].asked, over=True, **how)

    @property
    def stands(self) -> list[Stand]:
        return [seat.stand for seat in self.rounds.seats]


def run(np: int = 2, least: int = 1, most: int = 4, **more: Any) -> Run:
    hosts = more.pop("hosts", {"a~0": 1, "b~0": 1})
    return Run(np, Elastic(least, most, **more), dict(hosts))


def trained(**more: Any) -> Run:
    """One in which the first round has begun."""
    made = run(**more)
    made.turn()
    made.ask(*range(len(made.rounds.seats)))
    made.turn()
    assert made.rounds.number == 1
    return made


def test_the_first_round_has_all_that_are_on_their_way() -> None:
    made = run(hosts={"a~0": 2, "b~0": 1})
    assert list(made.turn().starts) == [0, 1, 2]
    made.ask(0, 1)
    assert (made.turn().changed, made.rounds.number) == (False, 0), "the third comes in a moment"
    made.ask(2)
    assert made.turn().changed
    assert (made.rounds.number, made.rounds.members) == (1, [0, 1, 2])


def test_the_first_round_does_not_wait_for_ever_for_more_than_were_asked_for() -> None:
    made = run(hosts={"a~0": 2, "b~0": 1})
    made.turn()
    made.ask(0, 2)
    made.turn()
    assert made.turn(after=11).changed
    assert made.rounds.members == [0, 2]


def test_no_more_than_the_most() -> None:
    made = run(most=2, hosts={"a~0": 5})
    assert list(made.turn().starts) == [0, 1]
    assert len(made.rounds.seats) == 2


def test_others_go_on_without_one_that_is_lost_and_rank_0_knows_the_way() -> None:
    made = trained(hosts={"a~0": 1, "b~0": 1, "c~0": 1}, np=3)
    del made.hosts["a~0"]
    assert not made.turn().changed, "the others still wait in a collective"
    made.hosts["d~0"] = 1
    assert list(made.turn().starts) == [3]
    made.ask(3, 2)
    made.turn()
    assert made.rounds.number == 1
    made.ask(1)
    assert made.turn().changed
    assert (made.rounds.number, made.rounds.members) == (2, [1, 2, 3]), "who comes anew is never the first"
    assert made.stands[0] is Stand.LOST


def test_members_learn_once_of_each_that_waits() -> None:
    made = trained()
    made.hosts["c~0"] = 2
    assert list(made.turn().starts) == [2, 3]
    assert made.rounds.news == 0, "nobody is interrupted before it is ready"
    made.ask(2)
    assert made.turn().changed
    assert not made.turn().changed
    made.ask(3)
    made.turn()
    assert made.rounds.news == 2
    made.ask(0, 1)
    made.turn()
    assert made.rounds.members == [0, 1, 2, 3]


def test_ranks_of_a_host_are_neighbours() -> None:
    made = trained(hosts={"a~0": 1, "b~0": 1}, most=4)
    made.hosts["a~0"] = 2
    made.turn()
    made.ask(2)
    made.turn()
    made.ask(0, 1)
    made.turn()
    assert made.rounds.members == [0, 2, 1]


def test_a_failed_one_is_replaced_after_a_while_each_time_later() -> None:
    made = trained(cooldown_s=(1.0, 3.0))
    pauses = []
    for _ in range(5):
        made.end(1)
        made.turn()
        assert made.stands[1] is Stand.FAILED
        waited = 0.0
        while 1 not in made.turn().starts and waited < 10:
            waited += 0.1
        pauses.append(round(waited + 0.1))
        assert made.rounds.seats[1].answered == 0
    assert pauses == [1, 2, 3, 3, 10], "five times is enough"


def test_the_end_of_all_that_trained_is_the_end() -> None:
    made = trained()
    made.end(0)
    made.end(1, lost=True)
    turn = made.turn()
    assert (turn.state, turn.detail) == (
        State.FAILED,
        "all ranks that trained have ended, and what they had learned with them",
    )


def test_ranks_that_fail_before_they_meet_are_not_tried_for_ever() -> None:
    made = run()
    made.turn()
    made.end(0)
    made.end(1)
    assert made.turn().detail == "every rank has failed"


def test_too_few_are_waited_for_so_long() -> None:
    made = trained(least=2, timeout_s=60)
    made.end(0, lost=True)
    del made.hosts["a~0"]
    made.turn()
    made.ask(1)
    assert made.turn().detail == "1 of 2 ranks wait for the others to come"
    turn = made.turn(after=61)
    assert turn.state is State.FAILED
    assert turn.detail == "1 of 2 ranks were there after 60 s (--elastic-timeout)"


def test_resets_have_a_limit() -> None:
    made = trained(reset_limit=1)
    made.ask(0, 1)
    assert made.turn().changed
    made.ask(0, 1)
    assert made.turn().detail == "the ranks have changed more than 1 times (--reset-limit)"


def test_the_first_success_is_the_beginning_of_the_end() -> None:
    made = trained(hosts={"a~0": 1, "b~0": 1, "c~0": 1}, np=3)
    made.ask(2)
    made.turn()
    made.end(0, ok=True)
    turn = made.turn()
    assert (list(turn.ends), turn.state) == ([2], None), "nobody is left for it to meet"
    made.end(1, ok=True)
    assert made.turn().state is State.SUCCEEDED
    assert made.stands == [Stand.DONE, Stand.DONE, Stand.SENT_AWAY]


def test_a_failure_beside_a_success_is_one() -> None:
    made = trained()
    made.end(0, ok=True)
    made.end(1)
    assert made.turn().state is State.FAILED


def test_another_supervisor_goes_on_from_what_is_written_down() -> None:
    made = trained()
    made.hosts["c~0"] = 1
    made.turn()
    made.ask(2)
    made.turn()
    told: Mapping[str, Any] = json.loads(json.dumps(made.rounds.to_json()))
    other = Rounds(made.np, made.limits)
    other.recall(told)
    assert other.to_json() == made.rounds.to_json()
    made.rounds = other
    assert not made.turn().changed
    made.ask(0, 1)
    assert made.turn().changed
    assert other.members == [0, 1, 2]


@pytest.mark.parametrize("stand", list(Stand))
def test_every_stand_says_what_it_means(stand: Stand) -> None:
    assert stand.value
    assert stand.lives == (stand.name in {"COMING", "WAITING", "MEMBER"})
