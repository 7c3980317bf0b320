"""Which ranks train together in an elastic run: the table of its rounds. Pure, but for what it is told.

A *seat* is a slot of a host; the processes that take it, one after the other, keep their files in its folder,
whose number is the seat's. A process *asks* for its place in the next round, at first and again whenever the
ranks have to meet anew. A round begins once all that still run of the last one have asked; a process that is
new prepares itself meanwhile, and the others learn of it (`news`) when it is ready.
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
"""A seat whose processes have failed so often is given up."""
_FIRST_S = 10.0
"""For how long the first round waits for those that are on their way, when enough are there."""


@dataclass(frozen=True)
class Elastic:
    """Within which limits the ranks of a run may change."""

    min_np: int
    max_np: int
    timeout_s: float = 600.0
    """How long to wait for enough ranks."""
    reset_limit: int | None = None
    cooldown_s: tuple[float, float] = (1.0, 30.0)
    """After how long a seat is taken again whose process has failed: at first, and at most."""
    anew: bool = False
    """Whether all ranks are started anew when their number changes, as torch's have to be. Those of Horovod
    go on (`hvd.elastic.run`)."""


class Stand(enum.Enum):
    """How a seat stands."""

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
    """Where processes of the run may be, one after the other."""

    host: str
    """The host's name and generation."""
    slot: int
    number: int = -1
    """Of its newest process."""
    answered: int = 0
    """How often that one was given a place."""
    stand: Stand = Stand.EMPTY
    failures: list[float] = field(default_factory=list)
    """When its processes have failed; seconds since the epoch."""


@dataclass(frozen=True)
class SeatStatus:
    """What is known of a seat's newest process."""

    asked: int = 0
    """How often it has asked for a place."""
    over: bool = False
    ok: bool = False
    lost: bool = False


@dataclass(frozen=True)
class RoundStep:
    """What is to be done now."""

    starts: Sequence[int] = ()
    """Seats that are to get a new process."""
    ends: Sequence[int] = ()
    """Seats whose processes are to end."""
    changed: bool = False
    """Whether there is a new round, or news."""
    state: State | None = None
    """How the run has ended; processes may still be there."""
    detail: str | None = None


class Rounds:
    """The seats and rounds of one attempt. `turn` is to be called often; it starts and ends nothing."""

    def __init__(self, np: int, limits: Elastic) -> None:
        self._np, self._limits = np, limits
        self.seats: list[Seat] = []
        self.number = 0
        """Of the newest round; 0: there was none."""
        self.members: list[int] = []
        """Its seats, by rank."""
        self.news = 0
        """How often the members were to learn that others wait."""
        self._announced: list[list[int]] = []
        self._short_since: float | None = None

    def to_json(self) -> dict[str, Any]:
        seats = [{**dataclasses.asdict(seat), "stand": seat.stand.name} for seat in self.seats]
        about = {"number": self.number, "members": self.members, "news": self.news}
        return {**about, "announced": self._announced, "seats": seats}

    def recall(self, told: Mapping[str, Any]) -> None:
        """Go on from what `to_json` has said."""
        self.number, self.members, self.news = told["number"], list(told["members"]), told["news"]
        self._announced = [list(each) for each in told["announced"]]
        self.seats = [Seat(**{**seat, "stand": Stand[seat["stand"]]}) for seat in told["seats"]]

    def turn(self, hosts: Mapping[str, int], seen: Mapping[int, SeatStatus], now: float) -> RoundStep:
        """`hosts`: the slots of those that can be used now. `seen`: by seat."""
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
        """Take in what is known of a seat's process. `there`: whether its host can be used."""
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
        """One has succeeded: all are about to, and for a process without a place nobody is there any more."""
        ends = self._seats(Stand.COMING, Stand.WAITING)
        for place in ends:
            self.seats[place].stand = Stand.SENT_AWAY
        ends = self._seats(Stand.SENT_AWAY)
        if self._seats(Stand.MEMBER):
            return RoundStep(ends=ends)
        failed = any(self.seats[place].stand is Stand.FAILED for place in self.members)
        return RoundStep(ends=ends, state=State.FAILED if failed else State.SUCCEEDED)

    def _fill(self, hosts: Mapping[str, int], now: float) -> list[int]:
        """Give each slot a seat, as far as ranks are wanted, and each seat a process; returns those seats."""
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
        """Why there is no way on."""
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
        """A new round. Who was there before comes first: rank 0 tells the others how far training has come.
        The ranks of a host are neighbours."""
        before = [place for place in self.members if place in waiting and self.seats[place].answered]
        order = [*before, *(place for place in waiting if place not in before)][: self._limits.max_np]
        hosts = list(dict.fromkeys(self.seats[place].host for place in order))
        self.members = sorted(order, key=lambda place: hosts.index(self.seats[place].host))
        self.number += 1
        self._short_since = None
        for place in self.members:
            self.seats[place].answered = seen[place].asked
            self.seats[place].stand = Stand.MEMBER

    def _announce(self, waiting: Sequence[int]) -> bool:
        """Whether the members are to learn now that others wait for a place: of each once."""
        new = [[place, self.seats[place].number] for place in waiting if place not in self.members]
        new = [each for each in new if each not in self._announced]
        if not new or len(self._seats(Stand.MEMBER)) >= self._limits.max_np:
            return False
        self._announced += new
        self.news += 1
        return True
