"""The rounds of an elastic run: which ranks train together. Pure, except for its input.

A *seat* is a slot of a host. Its successive processes keep their files in the folder with the seat's number.
A process *asks* for its place in the next round: first at its start, and again whenever the ranks have to
meet anew. A round begins once all running members of the previous one have asked. A new process prepares
itself meanwhile. The members learn of it (`news`) when it is ready.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...job import State

__all__ = ["Elastic", "RoundStep", "Rounds", "Seat", "SeatStatus", "Stand"]

_PATIENCE = 5
"""Number of failures after which a seat is given up."""
_FIRST_S = 10.0
"""Seconds that a sufficient first round waits for processes that are still starting."""


@dataclass(frozen=True)
class Elastic:
    """Limits within which the ranks of a run may change."""

    min_np: int
    max_np: int
    timeout_s: float = 600.0
    """Seconds to wait for enough ranks."""
    reset_limit: int | None = None
    cooldown_s: tuple[float, float] = (1.0, 30.0)
    """Seconds until a failed seat is used again: the first time, and at most."""
    anew: bool = False
    """Whether all ranks restart when their number changes, as torch needs it.

    Horovod's ranks continue instead (`hvd.elastic.run`).
    """


class Stand(enum.Enum):
    """The state of a seat."""

    EMPTY = "no process was started yet"
    COMING = "its process has not asked for a place"
    WAITING = "its process has asked, and has no place"
    MEMBER = "its process trains in the newest round"
    DONE = "its process has succeeded"
    FAILED = "its process has failed"
    LOST = "nothing is known of its process any more"
    SENT_AWAY = "its process was asked to end"

    @property
    def lives(self) -> bool:
        return self in (Stand.COMING, Stand.WAITING, Stand.MEMBER)


@dataclass
class Seat:
    """A slot of a host for successive processes of the run."""

    host: str
    """The host's name and generation."""
    slot: int
    number: int = -1
    """Number of the seat's newest process."""
    answered: int = 0
    """How often the newest process has received a place."""
    stand: Stand = Stand.EMPTY
    failures: list[float] = field(default_factory=list)
    """When the seat's processes have failed, in seconds since the epoch."""


@dataclass(frozen=True)
class SeatStatus:
    """Facts about a seat's newest process."""

    asked: int = 0
    """How often the process has asked for a place."""
    over: bool = False
    ok: bool = False
    lost: bool = False


@dataclass(frozen=True)
class RoundStep:
    """The actions that are due now."""

    starts: Sequence[int] = ()
    """Seats that need a new process."""
    ends: Sequence[int] = ()
    """Seats whose processes must end."""
    changed: bool = False
    """Whether there is a new round, or news."""
    state: State | None = None
    """The run's final state. Processes may still be running."""
    detail: str | None = None


class Rounds:
    """The seats and rounds of one attempt. Call `turn` often. It starts and ends nothing itself."""

    def __init__(self, np: int, limits: Elastic) -> None:
        self._np, self._limits = np, limits
        self.seats: list[Seat] = []
        self.number = 0
        """Number of the newest round. 0: there was none."""
        self.members: list[int] = []
        """Seats of the newest round, by rank."""
        self.news = 0
        """How often the members were notified that others wait."""
        self._announced: list[list[int]] = []
        self._short_since: float | None = None

    def to_json(self) -> dict[str, Any]:
        seats = [{**dataclasses.asdict(seat), "stand": seat.stand.name} for seat in self.seats]
        about = {"number": self.number, "members": self.members, "news": self.news}
        return {**about, "announced": self._announced, "seats": seats}

    def recall(self, told: Mapping[str, Any]) -> None:
        """Restore what `to_json` has recorded."""
        self.number, self.members, self.news = told["number"], list(told["members"]), told["news"]
        self._announced = [list(each) for each in told["announced"]]
        self.seats = [Seat(**{**seat, "stand": Stand[seat["stand"]]}) for seat in told["seats"]]

    def turn(self, hosts: Mapping[str, int], seen: Mapping[int, SeatStatus], now: float) -> RoundStep:
        """Return the actions that are due. `hosts`: slots of the usable hosts. `seen`: facts by seat."""
        for place, seat in enumerate(self.seats):
            self.look(seat, seat.host in hosts, seen.get(place, SeatStatus()), now)
        if any(seat.stand is Stand.DONE for seat in self.seats):
            return self._finish()
        starts = self._fill(hosts, now)
        trouble = self._trouble(hosts)
        if trouble is not None:
            return RoundStep(state=State.FAILED, detail=trouble)
        waiting, need = self._seats(Stand.WAITING), self._need
        if self._seats(Stand.MEMBER):
            self._short_since = None
            return RoundStep(starts, changed=self._announce(waiting))
        self._short_since = self._short_since or now
        waited_s = now - self._short_since
        patient = self.number == 0 and waited_s < _FIRST_S and len(waiting) < self._limits.max_np
        if len(waiting) >= need and not (patient and self._seats(Stand.COMING)):
            limit = self._limits.reset_limit
            if limit is not None and self.number > limit:
                why = f"the ranks have changed more than {limit} times (--reset-limit)"
                return RoundStep(state=State.FAILED, detail=why)
            self._begin(waiting, seen)
            return RoundStep(starts, changed=True)
        if waited_s > self._limits.timeout_s:
            why = f"{len(waiting)} of {need} ranks were there after {self._limits.timeout_s:g} s"
            return RoundStep(state=State.FAILED, detail=f"{why} (--elastic-timeout)")
        return RoundStep(starts, detail=f"{len(waiting)} of {need} ranks wait for the others to come")

    @property
    def _need(self) -> int:
        return self._limits.min_np if self.number else self._np

    def _seats(self, *stands: Stand) -> list[int]:
        return [place for place, seat in enumerate(self.seats) if seat.stand in stands]

    @staticmethod
    def look(seat: Seat, there: bool, seen: SeatStatus, now: float) -> None:
        """Update a seat from the facts about its process. `there`: whether its host is usable."""
        if not seat.stand.lives:
            return
        if seen.over and not seen.lost:
            seat.stand = Stand.DONE if seen.ok else Stand.FAILED
        elif seen.over or not there:
            seat.stand = Stand.LOST
        elif seen.asked > seat.answered:
            seat.stand = Stand.WAITING
        if not seat.stand.lives and seat.stand is not Stand.DONE:
            seat.failures.append(now)

    def _finish(self) -> RoundStep:
        """Return the actions after a success: all members finish soon, and no further process can join."""
        ends = self._seats(Stand.COMING, Stand.WAITING)
        for place in ends:
            self.seats[place].stand = Stand.SENT_AWAY
        ends = self._seats(Stand.SENT_AWAY)
        if self._seats(Stand.MEMBER):
            return RoundStep(ends=ends)
        failed = any(self.seats[place].stand is Stand.FAILED for place in self.members)
        return RoundStep(ends=ends, state=State.FAILED if failed else State.SUCCEEDED)

    def _fill(self, hosts: Mapping[str, int], now: float) -> list[int]:
        """Assign a seat to each slot while ranks are wanted. Returns the seats that need a process."""
        known = {(seat.host, seat.slot) for seat in self.seats}
        starts = []
        free = self._limits.max_np - len(self._usable(hosts))
        for host, slots in hosts.items():
            for slot in range(slots):
                if (host, slot) not in known and free > 0:
                    self.seats.append(Seat(host, slot))
                    free -= 1
        for place in self._usable(hosts):
            seat = self.seats[place]
            if not seat.stand.lives and now >= self._again_at(seat):
                seat.number, seat.answered, seat.stand = seat.number + 1, 0, Stand.COMING
                starts.append(place)
        return starts

    def _usable(self, hosts: Iterable[str]) -> list[int]:
        there = set(hosts)
        return [
            place
            for place, seat in enumerate(self.seats)
            if seat.host in there and len(seat.failures) < _PATIENCE
        ]

    def _again_at(self, seat: Seat) -> float:
        if not seat.failures:
            return 0.0
        low, high = self._limits.cooldown_s
        return seat.failures[-1] + min(high, low * (1 << (len(seat.failures) - 1)))

    def _trouble(self, hosts: Iterable[str]) -> str | None:
        """Return why the run cannot continue."""
        if self.number:
            trained = [self.seats[place] for place in self.members if self.seats[place].answered]
            if not any(seat.stand.lives for seat in trained):
                return "all ranks that trained have ended, and what they had learned with them"
        tried = [seat for seat in self.seats if seat.stand is not Stand.EMPTY]
        if tried and all(seat.stand is Stand.FAILED for seat in tried):
            return "every rank has failed"
        given_up = sum(len(seat.failures) >= _PATIENCE for seat in self.seats)
        if given_up and len(self._usable(hosts)) < self._need:
            return f"{given_up} ranks have failed {_PATIENCE} times, and fewer than {self._need} are left"
        return None

    def _begin(self, waiting: Sequence[int], seen: Mapping[int, SeatStatus]) -> None:
        """Begin a new round. The ranks of a host are neighbours.

        Members of the previous round come first: rank 0 sends the training state to the others.
        """
        there = set(waiting)
        before = [place for place in self.members if place in there and self.seats[place].answered]
        order = list(dict.fromkeys([*before, *waiting]))[: self._limits.max_np]
        hosts = {host: number for number, host in enumerate(dict.fromkeys(self.seats[p].host for p in order))}
        self.members = sorted(order, key=lambda place: hosts[self.seats[place].host])
        self.number += 1
        self._short_since = None
        for place in self.members:
            self.seats[place].answered = seen[place].asked
            self.seats[place].stand = Stand.MEMBER

    def _announce(self, waiting: Sequence[int]) -> bool:
        """Return whether to notify the members that others wait. Each waiting process is announced once."""
        members, announced = set(self.members), {tuple(each) for each in self._announced}
        new = [[place, self.seats[place].number] for place in waiting if place not in members]
        new = [each for each in new if tuple(each) not in announced]
        if not new or len(self._seats(Stand.MEMBER)) >= self._limits.max_np:
            return False
        self._announced += new
        self.news += 1
        return True
