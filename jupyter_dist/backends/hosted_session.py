"""The ranks of a session on hosts with our agent, between their cells and in them.

A session's supervisor sends wishes, and receives news. Both are JSON:

    {"do": "message", "rank", "message"}   send a message to a rank (worker/session/rank_loop.py)
    {"do": "stage", "cell", "ranks", "more"}   send the files of a cell, and `more` payloads, to the hosts
    {"do": "kill", "rank"}
    {"do": "replace", "rank", "number"}    start a fresh process in place of a rank's earlier one
    {"do": "ports"}                        look for new free TCP ports on the host of rank 0
    {"do": "stacks"}

    {"messages": [[rank, number, message], …], "numbers": {rank: number}, "ready": [cell, why] or null,
     "stages": {rank: folder}, "memory": {rank: bytes}, "away": [rank, …], "ports": [port, …],
     "not_kept": text or null,
     "poll": the states of the ranks, "started": whether there were ranks, "turn": the number of the news,
     "over": why no rank can be replaced any more, or null}

`away` are the ranks whose host has no connection now. `not_kept` says which files of the present cell could
not be written on this machine. `over` ends the session when all ranks have ended.

A rank's `number` counts its processes. News of an earlier process thus cannot be mistaken for the present's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..agent.session_ranks import FOLLOWED
from ..folder import RunFolder
from ..hosts.arrivals import Arrivals
from ..hosts.facts import HostFacts
from ..hosts.fleet import Fleet, FleetPoll
from ..hosts.host import Host
from ..hosts.links.wake_pipe import WakePipe
from ..hosts.rank_requests import RankRequests
from ..hosts.staged_files import Shipped, run_files
from ..hosts.start import Start
from ..job import Job, Poll, RankState, State
from ..worker import layout
from ..worker.gpus import by_local_rank
from ..worker.session import place
from .ranks.placement import RankPlacement, taken_gpus
from .ranks.rank_states import rank_state

__all__ = ["HostedSession", "SessionExchange", "session_environments"]

_PORTS = 4
_KILL_AWAY_S = 3.0
"""After a kill, the driver waits this long for a host without a connection."""


def session_environments(
    job: Job,
    where: Sequence[RankPlacement],
    facts: Mapping[str, HostFacts],
    envs: Sequence[Mapping[str, str]],
) -> list[Mapping[str, str]]:
    """Return the ranks' environments with the folder in which each connects to its agent, in a session."""
    if job.session is None:
        return list(envs)
    return [{**env, place.VARIABLE: facts[rank.host].stage} for rank, env in zip(where, envs, strict=True)]


class HostedSession:
    """The session's ranks after their first start. Not thread-safe."""

    def __init__(
        self,
        fleet: Fleet,
        ranks: Sequence[RankState],
        starts: Sequence[Start],
        gpus: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """`gpus`: the requests for GPUs by host, as `Fleet.lease` takes them."""
        self._fleet, self._ranks, self._gpus = fleet, ranks, gpus
        self._taken = {name: taken_gpus(fleet.facts(name)) for name in gpus}
        """The GPUs of each host, in the order in which its ranks got them."""
        self._starts = {start.rank: start for start in starts if start.rank is not None}
        """The newest start of each rank."""
        self._asked: set[int] = set()
        """Ranks whose fresh process waits for its host."""
        self._refused: dict[int, str] = {}
        """Ranks whose fresh process gets no GPUs, and why."""
        self._killed: dict[int, float] = {}
        """When each rank was killed (seconds since the epoch)."""
        self._cell: RunFolder | None = None
        self._cell_hosts: list[str] = []
        self._requests: RankRequests | None = None
        self._messages: list[tuple[int, int, dict[str, Any]]] = []
        fleet.elastic = True  # a host that fails later must not end the ranks of the others
        self._look_for_ports()

    def obey(self, wish: Mapping[str, Any]) -> None:
        """Carry out a wish of the session's supervisor."""
        do = wish["do"]
        if do == "stage":
            self._stage(RunFolder(Path(wish["cell"])), wish["ranks"], [Path(path) for path in wish["more"]])
        elif do == "replace":
            self._replace(wish["rank"], wish["number"])
        elif do == "ports":
            self._look_for_ports()
        elif do == "stacks":
            self._fleet.stacks()
        elif do == "kill":
            self._killed.setdefault(wish["rank"], time.time())
            self._host(wish["rank"]).cells.kill(self._id(wish["rank"]))
        elif do == "message":
            self._host(wish["rank"]).cells.message(self._id(wish["rank"]), wish["message"])

    def _id(self, rank: int) -> str:
        return self._starts[rank].id(0)

    def _host(self, rank: int) -> Host:
        name = self._starts[rank].host
        return next(host for host in self._fleet.members if host.name == name)

    def _look_for_ports(self) -> None:
        self._fleet.ask_for_ports({self._starts[0].host: _PORTS})

    def _stage(self, cell: RunFolder, ranks: Sequence[int], more: Sequence[Path]) -> None:
        """Begin to send a cell's files, once to each host. Late output of older cells is not followed."""
        self._cell, self._requests = cell, RankRequests(cell)
        self._fleet.cells[cell.id] = Arrivals(cell)
        for old in list(self._fleet.cells)[:-FOLLOWED]:
            del self._fleet.cells[old]
        both = [each for path in more for each in (path, path.with_suffix(layout.BUFFERS)) if each.exists()]
        files = [*run_files(cell), *(Shipped(path.name, path.stat().st_size, path) for path in both)]
        self._cell_hosts = list(dict.fromkeys(self._starts[rank].host for rank in ranks))
        for name in self._cell_hosts:
            mine = [rank for rank in ranks if self._starts[rank].host == name]
            self._host(mine[0]).cells.stage(cell.id, files, mine)

    def _replace(self, rank: int, number: int) -> None:
        host = self._host(rank)
        if self._is_running(rank):
            host.cells.kill(self._id(rank))
        if host.lost or host.failed or host.released:
            self._fleet.again(host, ports=0)
            if rank == 0 or self._starts[0].host == host.name:
                self._look_for_ports()
        else:
            host.forget(self._id(rank))
        self._starts[rank] = dataclasses.replace(self._starts[rank], number=number)
        if host.name in self._gpus:
            self._fleet.lease({host.name: self._gpus[host.name]})  # another agent has no GPUs yet
        self._killed.pop(rank, None)
        self._refused.pop(rank, None)
        self._asked.add(rank)

    def _is_running(self, rank: int) -> bool:
        process = self._host(rank).processes.get(self._id(rank))
        return process is not None and not process.over

    def poll(self, state: FleetPoll, detail: str | None) -> Poll:
        """Start what waits for its host, pass requests on, and return the states of the ranks."""
        for rank in sorted(self._asked):
            if self._host(rank).settled:
                self._asked.discard(rank)
                self._start_again(rank)
        if self._requests is not None and self._cell is not None:
            for path, text in self._requests.new():
                for host in (each for each in self._fleet.members if each.name in self._cell_hosts):
                    host.cells.tell(self._cell.id, path, text)
        ranks = tuple(self._state(rank) for rank in self._ranks)
        errors = dict.fromkeys(
            [
                *(f"host {host.name}: {host.failed}" for host in self._fleet.members if host.failed),
                *(f"host {self._starts[rank].host}: {why}" for rank, why in self._refused.items()),
            ]
        )
        told = "; ".join(filter(None, [detail, *errors])) or None
        return Poll(RankState.overall(ranks), ranks, pids=state.pids, detail=told)

    def _start_again(self, rank: int) -> None:
        """Start a rank's fresh process with the GPUs of the earlier one, or with others in their place."""
        start = self._starts[rank]
        leased = self._fleet.facts(start.host).leased if start.host in self._gpus else None
        if leased is not None and leased["why"]:
            self._refused[rank] = str(leased["why"])
            return
        if leased is not None:
            now = dict(zip(self._taken[start.host], map(str, leased["gpus"]), strict=False))
            shown = {
                name: ",".join(now.get(gpu, gpu) for gpu in start.env[name].split(","))
                for name in ("CUDA_VISIBLE_DEVICES", by_local_rank.SEES)
                if name in start.env
            }
            start = dataclasses.replace(start, env={**start.env, **leased["env"], **shown})
        self._fleet.start(0, [start])

    def _state(self, rank: RankState) -> RankState:
        host = self._host(rank.rank)
        process = host.processes.get(self._id(rank.rank))
        if process is None:
            broken = rank.rank in self._refused or (rank.rank in self._asked and (host.failed or host.lost))
            return dataclasses.replace(rank, state=State.LOST) if broken else rank
        killed = self._killed.get(rank.rank)
        if killed is not None and host.away is not None and not process.over:
            ended = killed + _KILL_AWAY_S
            if time.time() > ended:
                return dataclasses.replace(rank, state=State.LOST, pid=process.pid, ended=ended)
        return rank_state(rank, process)

    def news(self) -> dict[str, Any]:
        """Return what the ranks have sent since the last call, and facts about them."""
        present = {self._id(rank): rank for rank in self._starts}
        for host in self._fleet.members:
            arrived, host.cells.arrived = host.cells.arrived, []
            for process, message in arrived:
                if process in present:
                    rank = present[process]
                    self._messages.append((rank, self._starts[rank].number, message))
        messages, self._messages = self._messages, []
        memory = {name: size for host in self._fleet.members for name, size in host.cells.memory.items()}
        facts = {rank: self._host(rank).facts for rank in self._starts}
        return {
            "messages": messages,
            "numbers": {rank: start.number for rank, start in self._starts.items()},
            "ready": self._ready(),
            "stages": {rank: about.stage for rank, about in facts.items() if about is not None},
            "memory": {rank: memory.get(name) for name, rank in present.items()},
            "away": [rank for rank in self._starts if self._host(rank).away is not None],
            "not_kept": self._not_kept(),
            "ports": list(self._fleet.ports(self._starts[0].host)),
        }

    def _not_kept(self) -> str | None:
        """Return which of the present cell's files could not be written here, and where they are."""
        texts = [host.not_kept for host in self._fleet.members if host.not_kept is not None]
        return "; ".join(text for text in texts if self._cell is not None and self._cell.id in text) or None

    def _ready(self) -> list[str | None] | None:
        """Return the present cell's id, and why a host cannot run it; None if hosts lack its files."""
        if self._cell is None:
            return None
        found = {
            host.name: host.cells.ready[self._cell.id]
            for host in self._fleet.members
            if host.name in self._cell_hosts and self._cell.id in host.cells.ready
        }
        failed = [f"host {name}: {why}" for name, why in found.items() if why is not None]
        if failed:
            return [self._cell.id, "; ".join(failed)]
        return [self._cell.id, None] if len(found) == len(self._cell_hosts) else None


class SessionExchange:
    """Calls that bring wishes, and one call at a time that waits for news."""

    def __init__(self) -> None:
        self.ranks: HostedSession | None = None
        """The session's ranks, once they have started."""
        self._alarm = WakePipe()
        self._lock = threading.Lock()
        self._hurries = 0
        """The number of calls that bring wishes. The call that waits ends its wait for them."""
        self._turn = 0
        self._last: object = None

    @contextlib.contextmanager
    def hurry(self, wishes: Sequence[Mapping[str, Any]]) -> Iterator[None]:
        """End the wait of another call, if there are wishes. The caller takes the ranks' lock afterwards."""
        with self._lock:
            self._hurries += bool(wishes)
            self._alarm.open()
        if wishes:
            self._alarm.wake()
        try:
            yield
        finally:
            with self._lock:
                self._hurries -= bool(wishes)

    def make(
        self, fleet: Fleet, poll: Callable[[], Poll], wishes: Sequence[Mapping[str, Any]], wait_s: float
    ) -> dict[str, Any]:
        """Carry out the wishes in their order, and return news of the ranks.

        Without wishes, waits for news for at most that many seconds. `poll` advances the hosts.
        """
        until = time.monotonic() + wait_s
        for wish in wishes:
            assert self.ranks is not None, "a wish before the ranks have started"
            self.ranks.obey(wish)
        while True:
            self._alarm.clear()
            found = poll()
            more = {} if self.ranks is None else self.ranks.news()
            facts = found, {name: more[name] for name in more if name not in ("messages", "memory")}
            if more.get("messages") or facts != self._last or wishes or self._hurries:
                break
            if time.monotonic() >= until:
                break
            fleet.wait(max(0.0, until - time.monotonic()), self._alarm)
        self._last = facts
        self._turn += 1
        return {"poll": found.to_json(), "started": self.ranks is not None, "turn": self._turn, **more}
