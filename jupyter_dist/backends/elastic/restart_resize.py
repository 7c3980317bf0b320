"""Resizing of an elastic run by a restart of all ranks, as torch needs it.

A process group of torch has a fixed size. Each *round* is therefore an attempt of the run. When a host is
lost or others join, all ranks are stopped. As many ranks as possible then start, each with its rank in its
environment. The cell itself resumes training from a checkpoint, as under torchrun.

A round is recorded before its ranks are requested: a new supervisor continues from the record.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...folder import RunFolder, make_private, write_json
from ...hosts.facts import HostProcess
from ...hosts.fleet import Fleet
from ...hosts.start import Start
from ...job import Job, Poll, RankState, State
from ...worker import layout
from ..ranks.placement import (
    RankEnvironmentOptions,
    RankPlacement,
    environments,
    gpu_trouble,
    places,
    ports_needed,
    rank_starts,
)
from ..ranks.rank_states import rank_state
from .host_pool import HostPool, name_of
from .rounds import Elastic

__all__ = ["RestartResize"]

_QUIET_S = 1.0
"""Seconds without a change of the hosts after which a round begins."""
_COMING_S = 10.0
"""Seconds that a round with enough hosts waits for further ones that are being set up."""
_GROW_S = 3.0
"""Seconds for which more ranks must be possible before all ranks restart for them."""
_NOTICED_S = 3.0
"""Seconds that the loss of a host may stay unnoticed here after other ranks have failed because of it."""
_KILL_S = 5.0


class _Phase(enum.Enum):
    GATHERING = "there are no ranks, and hosts are waited for"
    READYING = "the hosts of the next round look for ports"
    TRAINING = "ranks are started, or run"
    CLEARING = "ranks are ended, for others to begin"
    OVER = "it has come to something without any ranks"


class RestartResize:
    """The ranks of one requested attempt, and of the following rounds, which are the next attempts.

    Not for several threads.
    """

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
        self._job, self._fleet, self._limits, self._wanted = job, fleet, limits, wanted
        self._gone = gone
        self._pool = HostPool(job, fleet, wanted, hosts, gone)
        self._first = self._number = attempt
        self._rounds = 0
        """Number of rounds so far."""
        self._place = folder.attempt(attempt)
        self._phase = _Phase.GATHERING
        self._where: list[RankPlacement] = []
        self._keys: dict[str, str] = {}
        """Hosts of the newest round: from each name to the name with its generation."""
        self._last: tuple[RankState, ...] = RankState.all(self._job.world_size)
        """Final states of the ranks, once no new state can follow."""
        self._lost_at: dict[int, float] = {}
        self._why = ""
        """Why the newest round ended."""
        self._lost: list[str] = []
        """Hosts whose loss ended the newest round."""
        self._found: dict[int | None, HostProcess] = {}
        self._hosts: dict[str, int] = {}
        self._changed_at = self._enough_since = self._began = time.monotonic()
        self._failed_at: float | None = None
        self._has_failed = self._killed = False
        self._cleared_at = 0.0
        self._verdict: Poll | None = None
        self._written: Any = None
        self.stopping = False

    def recall(self) -> bool:
        """Continue from the record of an earlier supervisor. Returns False if there is none."""
        try:
            told = json.loads(self._memory.read_bytes())
        except (OSError, ValueError):
            return False
        self._number, self._rounds, self._why = told["number"], told["rounds"], told["why"]
        self._where = [RankPlacement(**place) for place in told["where"]]
        self._keys = dict(told["keys"])
        self._pool.recall(told["hosts"])
        if told["phase"] in (_Phase.TRAINING.name, _Phase.CLEARING.name):
            self._fleet.expect(self._number, [Start(p.host, (), {}, p.rank) for p in self._where])
            self._phase = _Phase.TRAINING
        if told["phase"] == _Phase.CLEARING.name:
            self._begin_anew(told["lost"])
        return True

    @property
    def _memory(self) -> Any:
        return self._place / layout.hidden("elastic.json")

    def _write_down(self) -> None:
        told: dict[str, Any] = {"number": self._number, "rounds": self._rounds, "phase": self._phase.name}
        told |= {"lost": self._lost, "why": self._why}
        told |= {"where": [dataclasses.asdict(place) for place in self._where], "keys": dict(self._keys)}
        told["hosts"] = self._pool.to_json()
        if told != self._written:
            make_private(self._place)
            write_json(self._memory, told)
            self._written = told

    def poll(self, trouble: str | None) -> Poll:
        """Advance the run, and return its state. `trouble`: what currently hinders the links."""
        state = self._fleet.poll()
        if self._verdict is not None:
            return dataclasses.replace(self._verdict, pids=state.pids)
        self._found = {process.rank: process for process in state.processes}
        if not self.stopping:
            hosts = self._pool.tend()
            if hosts != self._hosts:
                self._hosts, self._changed_at = hosts, time.monotonic()
        ranks, waits = self._turn()
        self._write_down()
        if self._verdict is not None:
            return dataclasses.replace(self._verdict, pids=state.pids)
        told = (waits, trouble, *self._pool.failures(), state.detail)
        return Poll(
            self._overall(ranks),
            ranks,
            pids=state.pids,
            attempt=self._number,
            replaces=not self._has_failed and not self.stopping,
            detail="; ".join(dict.fromkeys(filter(None, told))) or None,
        )

    def _turn(self) -> tuple[tuple[RankState, ...], str | None]:
        """Advance the run. Returns the states of the ranks, and what the run waits for."""
        if self._phase is _Phase.TRAINING:
            return self._train(), None
        if self._phase is _Phase.CLEARING:
            return self._clear(), self._why
        if self.stopping:
            self._end(State.STOPPED)
            return self._last, None
        if self._phase is _Phase.READYING:
            return (self._states() if self._make_ready() else self._last), self._why
        return self._last, self._gather()

    def _overall(self, ranks: Sequence[RankState]) -> State:
        if self._phase is not _Phase.TRAINING:
            return State.RUNNING if self._rounds else State.PENDING
        found = RankState.overall(ranks)
        # The run counts as running until it is clear whether the loss of a host caused the failure.
        return State.RUNNING if self._failed_at is not None and not self._is_judged else found

    @property
    def _is_judged(self) -> bool:
        return self._has_failed or self.stopping

    def _end(self, state: State, why: str | None = None, *, final: bool = False) -> None:
        self._phase = _Phase.OVER
        going = (State.PENDING, State.RUNNING)
        ranks = (dataclasses.replace(r, state=State.STOPPED) if r.state in going else r for r in self._last)
        self._verdict = Poll(state, tuple(ranks), attempt=self._number, final=final, detail=why)

    def _gather(self) -> str | None:
        """Choose the hosts of the next round if there are enough. Returns what the round waits for."""
        now, most = time.monotonic(), self._limits.max_np
        need = self._limits.min_np if self._rounds else self._job.world_size
        size = min(sum(self._hosts.values()), most)
        members = [host for host in self._fleet.members if host.name not in self._gone()]
        if members and all(host.failed and host.final for host in members):
            self._end(State.FAILED, "; ".join(self._pool.failures()), final=True)
            return None
        if size < need:
            self._enough_since = now
            waits = f"{size} of {need} ranks have a place"
            if now - self._began > self._limits.timeout_s:
                self._end(
                    State.FAILED,
                    f"{waits} after {self._limits.timeout_s:g} s (--elastic-timeout){self._after}",
                )
            return waits + self._after
        there = {name_of(key) for key in self._hosts}
        coming = [h for h in members if h.name not in there and not (h.failed or h.lost or h.away)]
        patient = now - self._enough_since < _COMING_S and coming
        if size < most and (patient or now - self._changed_at < _QUIET_S):
            return f"{size} of {most} ranks have a place, and others may come{self._after}"
        limit = self._limits.reset_limit
        if limit is not None and self._rounds > limit:
            why = f"the ranks have changed more than {limit} times (--reset-limit)"
            self._end(State.FAILED, why + self._after)
            return None
        self._choose(size)
        return None

    @property
    def _after(self) -> str:
        return f": {self._why}" if self._why else ""

    def _choose(self, size: int) -> None:
        """Choose the hosts of the next round.

        Hosts of earlier rounds come first, so their state stays at the first ranks.
        """
        before = [key for key in self._keys.values() if key in self._hosts]
        order = [*before, *(key for key in self._hosts if key not in before)]
        named = [{"name": name_of(key), "slots": self._hosts[key]} for key in order]
        self._where = places(size, named)
        used = {place.host for place in self._where}
        self._keys = {name_of(key): key for key in order if name_of(key) in used}
        self._fleet.ask_for_ports(ports_needed(self._where))
        self._phase = _Phase.READYING

    def _make_ready(self) -> bool:
        """Start the ranks once their hosts have found ports. Returns whether that is done."""
        if any(key not in self._hosts for key in self._keys.values()):
            self._phase = _Phase.GATHERING
            return False
        if not all(self._pool.member(name).settled for name in self._keys):
            return False
        facts = {name: self._fleet.facts(name) for name in self._keys}
        job = dataclasses.replace(self._job, world_size=len(self._where))
        trouble = gpu_trouble(job, self._wanted, self._where, facts)
        if trouble is not None:
            self._end(State.FAILED, trouble)
            return False
        self._number = self._number + 1 if self._rounds else self._first
        self._rounds += 1
        self._failed_at, self._lost_at, self._phase = None, {}, _Phase.TRAINING
        ports = {name: self._fleet.ports(name) for name in self._keys}
        envs = environments(job, self._number, self._wanted, self._where, facts, ports)
        self._write_down()
        self._fleet.start(self._number, rank_starts(self._where, facts, envs))
        self._found = {}
        return True

    def _train(self) -> tuple[RankState, ...]:
        """Return the states of the ranks.

        Begins to stop them if a host is lost, or more ranks are possible.
        """
        ranks = self._states()
        if self._is_judged or all(rank.state is State.SUCCEEDED for rank in ranks):
            return ranks
        now = time.monotonic()
        lost = list(dict.fromkeys(str(rank.host) for rank in ranks if rank.state is State.LOST))
        if lost:
            self._begin_anew(lost)
        elif any(rank.state is State.FAILED for rank in ranks):
            self._failed_at = self._failed_at or now
            away = any(self._pool.member(name).away is not None for name in self._keys)
            self._has_failed = not away and now - self._failed_at > _NOTICED_S
        elif not any(rank.state.ended for rank in ranks) and self._may_grow(now):
            self._begin_anew(())
        return self._states()

    def _may_grow(self, now: float) -> bool:
        room = min(sum(self._hosts.values()), self._limits.max_np)
        return room > len(self._where) and now - self._changed_at > _GROW_S

    def _states(self) -> tuple[RankState, ...]:
        ranks = []
        for place in self._where:
            rank = RankState(place.rank, State.PENDING, host=place.host, local_rank=place.local_rank)
            process = self._found.get(place.rank)
            if process is not None:
                rank = rank_state(rank, process)
            dropped = not self.stopping and self._keys[place.host] not in self._hosts
            lost = rank.state is State.LOST or (dropped and not rank.state.ended)
            if lost or place.rank in self._lost_at:  # in spite of any later report
                ended = self._lost_at.setdefault(place.rank, rank.ended or time.time())
                rank = dataclasses.replace(rank, state=State.LOST, ended=ended, exit_code=None, signal=None)
            elif self._phase is _Phase.CLEARING and not self._lost and rank.state is State.FAILED:
                # The rank failed because of another one, before its own stop.
                rank = dataclasses.replace(rank, state=State.STOPPED)
            ranks.append(rank)
        return tuple(ranks)

    def _begin_anew(self, lost: Sequence[str]) -> None:
        """Begin a new round. `lost`: the hosts that are the reason.

        If there are none, more ranks are possible.
        """
        self._lost, self._phase, self._killed = list(lost), _Phase.CLEARING, False
        self._cleared_at = time.monotonic()
        self._fleet.stop(kill=False)

    def _clear(self) -> tuple[RankState, ...]:
        """Stop the ranks of the round. Waits until nothing of it is left on usable hosts."""
        ranks, now = self._states(), time.monotonic()
        gone = self._gone()  # the platform may report the reason a moment later
        lost = [f"host {host} was lost" + (f": {gone[host]}" if host in gone else "") for host in self._lost]
        self._why = "; ".join(lost) or "there is room for more ranks"
        if all(rank.state.ended for rank in ranks):
            self._last, self._phase = ranks, _Phase.GATHERING
            self._began = self._enough_since = now
            print(f"attempt {self._number} has ended: {self._why}", flush=True)
            if self.stopping:
                self._end(State.STOPPED)
        elif not self._killed and now - self._cleared_at > _KILL_S:
            self._killed = True
            self._fleet.stop(kill=True)
        return ranks
