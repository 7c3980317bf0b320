"""Live resizing of an elastic run on hosts with our agent: hosts watched, rounds begun, seats filled.

Ranks need no connection to the driver for that. A rank's request is a line of a file in its folder. An answer
for all ranks is a small file on each host (worker/horovod/rendezvous.py). Every kind of link is therefore
sufficient. If the driver process dies, another one continues from the folder's content.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...folder import RunFolder, make_private, write_json
from ...hosts.facts import HostFacts, HostProcess
from ...hosts.fleet import Fleet
from ...hosts.start import Start
from ...job import Job, Poll, RankState, State
from ...worker import layout
from ...worker.gpus import by_local_rank
from ...worker.horovod.rendezvous import HOW, PROCESS
from ...worker.launchers.rank_folder import FOLDER
from ..ranks.local_gpus import gpu_wish
from ..ranks.placement import (
    RankEnvironmentOptions,
    RankPlacement,
    horovod_network,
    host_environment,
    taken_gpus,
)
from .host_pool import HostPool, name_of
from .rounds import Elastic, Rounds, RoundStep, Seat, SeatStatus, Stand

__all__ = ["LiveResize"]

_END_EVERY_S = 1.0
_KILL_S = 5.0
_STATES = {
    Stand.EMPTY: State.PENDING,
    Stand.DONE: State.SUCCEEDED,
    Stand.FAILED: State.FAILED,
    Stand.LOST: State.LOST,
    Stand.SENT_AWAY: State.STOPPED,
}


class _Asked:
    """The requests of a seat's newest process, from the lines in its folder."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._said: dict[int, tuple[int, int]] = {}

    def of(self, number: int) -> tuple[int, int]:
        """Return how often that process has asked, and on which port it would serve the next round."""
        with contextlib.suppress(OSError), open(self._path, "rb") as file:
            file.seek(self._offset)
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offset += len(whole)
            for line in whole.splitlines():
                said = json.loads(line)
                self._said[int(said["process"])] = int(said["asks"]), int(said["port"])
        return self._said.get(number, (0, 0))


class LiveResize:
    """The ranks of one attempt. Not for several threads."""

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        attempt: int,
        fleet: Fleet,
        *,
        limits: Elastic,
        wanted: RankEnvironmentOptions,
        hosts: Callable[[], Sequence[Mapping[str, Any]]],
        gone: Callable[[], Mapping[str, str]],
    ) -> None:
        """`hosts`: returns the current hosts. `gone`: returns the hosts that have ended according to the
        platform.
        """
        self._job, self._folder, self._attempt, self._fleet = job, folder, attempt, fleet
        self._wanted = wanted
        self._pool = HostPool(job, fleet, wanted, hosts, gone)
        self._rounds = Rounds(job.world_size, limits)
        self._place = folder.attempt(attempt)
        self._asked: dict[int, _Asked] = {}
        self._notice: dict[str, Any] = {}
        self._ends: dict[str, float] = {}
        self._ended_at = 0.0
        self._verdict: tuple[State, str | None] | None = None
        self._verdict_at = 0.0
        self._killed = False
        self.stopping = False

    def recall(self) -> bool:
        """Continue from the record of an earlier supervisor. Returns False if there is none."""
        try:
            told = json.loads(self._memory.read_bytes())
        except (OSError, ValueError):
            return False
        self._notice = told["notice"]
        self._rounds.recall(told["rounds"])
        self._pool.recall(told["hosts"])
        starts = [
            Start(name_of(seat.host), (), {}, place, number=seat.number)
            for place, seat in enumerate(self._rounds.seats)
            if seat.number >= 0
        ]
        self._fleet.expect(self._attempt, starts)
        return True

    @property
    def _memory(self) -> Any:
        return self._place / layout.hidden("elastic.json")

    def _write_down(self) -> None:
        make_private(self._place)
        about = {"notice": self._notice, "hosts": self._pool.to_json(), "rounds": self._rounds.to_json()}
        write_json(self._memory, about)

    def poll(self, trouble: str | None) -> Poll:
        """Advance the attempt, and return its state. `trouble`: what currently hinders the links."""
        state = self._fleet.poll()
        found = {process.id: process for process in state.processes}
        if self.stopping or self._verdict is not None:
            turn = RoundStep()
            for place, seat in enumerate(self._rounds.seats):
                self._rounds.look(seat, True, self._seen(place, seat, found), time.time())
        else:
            turn = self._turn(self._pool.tend(), found)
        ranks = tuple(self._rank(place, seat, found) for place, seat in enumerate(self._rounds.seats))
        overall = self._overall(turn, ranks)
        told = self._verdict[1] if self._verdict is not None else turn.detail
        detail = "; ".join(filter(None, (told, trouble, *self._pool.failures(), state.detail))) or None
        return Poll(
            overall,
            (*ranks, *self._missing(len(ranks), overall)),
            pids=state.pids,
            replaces=True,
            detail=detail,
        )

    def _turn(self, hosts: Mapping[str, int], found: Mapping[str, HostProcess]) -> RoundStep:
        seats = self._rounds.seats
        seen = {place: self._seen(place, seat, found) for place, seat in enumerate(seats)}
        before = len(seats), [seat.stand for seat in seats]
        turn = self._rounds.turn(hosts, seen, time.time())
        if turn.changed:
            self._set_notice()
        addressed = self._look_for_gone() or turn.changed
        if turn.starts or addressed or before != (len(seats), [seat.stand for seat in seats]):
            self._write_down()
        if addressed:
            for host in self._fleet.members:
                host.tell(self._notice_path, json.dumps(self._notice))
        if turn.starts:
            self._start(turn.starts)
        self._end([self._id(place) for place in turn.ends], found)
        if turn.state is not None:
            self._verdict, self._verdict_at = (turn.state, turn.detail), time.monotonic()
            self._fleet.stop(kill=False)
        return turn

    def _overall(self, turn: RoundStep, ranks: Sequence[RankState]) -> State:
        alive = any(rank.state in (State.RUNNING, State.PENDING) and rank.pid for rank in ranks)
        if self._verdict is not None:
            if not alive:
                return self._verdict[0]
            if not self._killed and time.monotonic() - self._verdict_at > _KILL_S:
                self._killed = True
                self._fleet.stop(kill=True)
            return State.RUNNING
        if self.stopping and not alive:
            return State.STOPPED
        return State.RUNNING if any(rank.started for rank in ranks) else State.PENDING

    def _missing(self, there: int, overall: State) -> list[RankState]:
        """Return the ranks that have no host yet."""
        state = State.STOPPED if overall.ended else State.PENDING
        return [RankState(rank, state) for rank in range(there, self._job.world_size)]

    def _id(self, place: int) -> str:
        number = self._rounds.seats[place].number
        return f"{self._attempt}.{place}" + (f".{number}" if number else "")

    def _seen(self, place: int, seat: Seat, found: Mapping[str, HostProcess]) -> SeatStatus:
        process = found.get(self._id(place))
        if process is None:
            return SeatStatus()
        path = self._folder.rank(self._attempt, place).path / layout.MEETING
        asked, _ = self._asked.setdefault(place, _Asked(str(path))).of(seat.number)
        lost = process.lost is not None
        return SeatStatus(asked, over=process.over, ok=process.exit_code == 0 and not lost, lost=lost)

    def _rank(self, place: int, seat: Seat, found: Mapping[str, HostProcess]) -> RankState:
        process = found.get(self._id(place))
        name = name_of(seat.host)
        if process is None:
            return RankState(place, _STATES.get(seat.stand, State.PENDING), host=name, local_rank=seat.slot)
        state = _STATES.get(seat.stand, State.PENDING if process.asked else State.RUNNING)
        if seat.stand is Stand.FAILED and process.told:
            state = State.STOPPED
        if seat.stand is Stand.SENT_AWAY and not process.over:
            state = State.RUNNING
        return RankState(
            place,
            state,
            pid=process.pid,
            host=name,
            local_rank=seat.slot,
            exit_code=process.exit_code,
            signal=process.signal,
            started=process.started,
            ended=process.ended or (time.time() if state is State.LOST else None),
            peak_memory_bytes=process.peak_memory_bytes,
        )

    def _start(self, places: Sequence[int]) -> None:
        starts = []
        for place in places:
            folder = self._folder.rank(self._attempt, place).path
            for name in (layout.ERROR, layout.RESULT):  # files of the previous process in this seat
                with contextlib.suppress(OSError):
                    os.unlink(folder / name)
            seat = self._rounds.seats[place]
            facts = self._fleet.facts(name_of(seat.host))
            argv = (facts.python, "-m", "jupyter_dist.worker")
            env = self._environment(place, seat, facts)
            starts.append(Start(facts.name, argv, env, place, fork=True, number=seat.number))
        self._fleet.start(self._attempt, starts)

    def _environment(self, place: int, seat: Seat, facts: HostFacts) -> dict[str, str]:
        slots = self._pool.member(facts.name).slots
        there = RankPlacement(place, facts.name, facts.node, seat.slot, slots)
        wish = gpu_wish(self._wanted, slots, self._job)
        gpus: tuple[str, ...] = ()
        if wish is not None and facts.gpus:
            gpus = wish.shares_out(taken_gpus(facts))[seat.slot]
        env = {
            HOW: "elastic",
            PROCESS: f"{place} {seat.number}",
            "HOROVOD_ELASTIC": "1",
            "HOROVOD_HOSTNAME": f"host{facts.node}",
            "RANK": str(place),
            "LOCAL_RANK": str(seat.slot),
            "WORLD_SIZE": str(self._job.world_size),
            "LOCAL_WORLD_SIZE": str(slots),
            "GROUP_RANK": str(facts.node),
            FOLDER: str(place),
            "JUPYTER_DIST_RUN_ID": self._job.id,
            "JUPYTER_DIST_ATTEMPT": str(self._attempt),
            "JUPYTER_DIST_CWD": self._job.cwd,
            **host_environment(there, self._wanted, facts, self._pool.address(facts.name), gpus),
        }
        env |= horovod_network(env)
        by_local_rank.offer(env, taken_gpus(facts))
        return env | {name: os.environ[name] for name in self._job.env_names if name in os.environ}

    def _end(self, ids: Sequence[str], found: Mapping[str, HostProcess]) -> None:
        now = time.monotonic()
        left = [id_ for id_ in ids if id_ in found and not found[id_].over]
        if not left or now - self._ended_at < _END_EVERY_S:
            return
        self._ended_at = now
        for id_ in left:
            self._ends.setdefault(id_, now)
        for host in self._fleet.members:
            mine = [id_ for id_ in left if found[id_].host == host.name]
            for kill in (False, True):
                those = [id_ for id_ in mine if (now - self._ends[id_] > _KILL_S) is kill]
                if those:
                    host.end(those, kill=kill)

    @property
    def _notice_path(self) -> str:
        return f"{layout.attempt_path('', self._attempt)}/{layout.NOTICE}"

    def _set_notice(self) -> None:
        rounds = self._rounds
        members = [rounds.seats[place] for place in rounds.members]
        first = rounds.members[0]
        if self._notice.get("round") != rounds.number:
            port = self._asked[first].of(members[0].number)[1]
            self._notice |= {"address": self._pool.address(name_of(members[0].host)), "port": port}
        # Local ranks follow the slots, and so the GPUs: the order of ranks changes in each round.
        beside = [sum(b.host == seat.host and b.slot < seat.slot for b in members) for seat in members]
        hosts = list(dict.fromkeys(seat.host for seat in members))
        across = [sum(b == beside[at] for b in beside[:at]) for at in range(len(members))]
        self._notice |= {"round": rounds.number, "news": rounds.news}
        self._notice["members"] = {
            f"{place} {seat.number}": {
                "RANK": at,
                "SIZE": len(members),
                "LOCAL_RANK": beside[at],
                "LOCAL_SIZE": sum(other.host == seat.host for other in members),
                "CROSS_RANK": across[at],
                "CROSS_SIZE": sum(b == beside[at] for b in beside),
                "NODE": hosts.index(seat.host),
            }
            for at, (place, seat) in enumerate(zip(rounds.members, members, strict=True))
        }

    def _look_for_gone(self) -> bool:
        """Publish the addresses of lost hosts, so that no rank waits for them.

        Returns whether they changed.
        """
        lost = [name_of(seat.host) for seat in self._rounds.seats if seat.stand is Stand.LOST]
        gone = self._pool.left(lost)
        before: list[str] = self._notice.get("gone", [])
        self._notice["gone"] = gone
        return gone != before
