"""The ranks of a session: their processes, their connections, and whose names they have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...folder import RunFolder
from ...job import Job, RankState, State
from ...worker.session.channel import Channel
from ..status_writer import log
from .processes import SessionProcesses, processes_of

__all__ = ["KeptRank", "RankLink", "Ranks"]

_UNCHANGEABLE = {"NoneType", "bool", "bytes", "complex", "float", "frozenset", "int", "range", "str", "tuple"}
_UNCHANGEABLE |= {
    "ABCMeta",
    "EnumType",
    "EnumMeta",
    "builtin_function_or_method",
    "function",
    "module",
    "type",
}
"""Names of the types whose values cells do not change in place."""


class RankLink(Protocol):
    """The connection of a rank: a `Channel`, or the way through an agent."""

    def send(self, message: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class _HostLink:
    """The way to a rank through the agent of its host."""

    def __init__(self, processes: SessionProcesses, rank: int) -> None:
        self._processes, self._rank = processes, rank

    def send(self, message: Mapping[str, Any]) -> None:
        self._processes.send(self._rank, message)

    def close(self) -> None:
        pass


@dataclass
class KeptRank:
    """One rank between its cells. `link` is None until the process has connected."""

    state: RankState
    link: RankLink | None = None
    fresh: bool = True
    """Whether the process has run no cell yet, nor all functions that a fresh rank calls first."""
    group: str | None = None
    """The communicator of its process group at the end of its last cell."""
    names: dict[str, str] = field(default_factory=dict)
    """Its names, with the types of their values."""
    uses: dict[str, list[str] | None] = field(default_factory=dict)
    """The global names that each of its names may read. See `worker.session.global_reads`."""
    asked: bool = False
    """Whether it was asked to end."""
    gpu_memory: int | None = None
    """The bytes that torch has reserved on its GPUs, after its last cell."""
    assigned: set[str] = field(default_factory=set)
    """Those of its names that cells have assigned."""
    sent: dict[str, str] = field(default_factory=dict)
    """Digests of the values that the notebook has sent."""

    def own_names(self) -> list[str]:
        """Return the names whose values only this process may have.

        A cell has assigned them, or may have changed the notebook's value in place. The notebook sends all
        other names again.
        """
        return sorted(
            name
            for name, kind in self.names.items()
            if name in self.assigned
            or (name in self.sent and kind.partition(" ")[0].rstrip(",") not in _UNCHANGEABLE)
        )

    @property
    def lives(self) -> bool:
        return self.state.state is State.RUNNING


class Ranks:
    """All ranks of a session.

    `job`: of the session. `folder`: the session's, shaped like a run's. `close`: closes a rank's connection.
    """

    def __init__(self, job: Job, folder: RunFolder, close: Callable[[RankLink], None]) -> None:
        self._close = close
        self.processes = processes_of(job, folder)
        self.all = [KeptRank(RankState(rank)) for rank in range(job.world_size)]
        self.lost: dict[int, list[str]] = {}
        """Ranks whose process has ended or was replaced, and the names that were lost with it."""
        self.on_start: list[str] = []
        """The payloads of the functions that a fresh rank calls first."""

    def start(self) -> None:
        """Start all ranks. Raises DistError if that is impossible."""
        self.processes.start()

    def poll(self) -> list[int]:
        """Look at the processes. Returns the ranks that have ended since the last call."""
        ended = []
        for state in self.processes.poll():
            kept = self.all[state.rank]
            if kept.state.pid == state.pid and kept.lives and state.state.ended:
                ended.append(state.rank)
                self._drop(kept)
            kept.state = state
        return ended

    def _drop(self, kept: KeptRank) -> None:
        if kept.link is not None:
            self._close(kept.link)
            kept.link = None

    def forget(self, rank: int) -> list[str]:
        """Note that a rank's process is gone, and return the names whose values only it may have had."""
        kept = self.all[rank]
        names = kept.own_names()
        kept.names, kept.sent, kept.assigned, kept.uses = {}, {}, set(), {}
        self.lost[rank] = sorted({*names, *self.lost.get(rank, ())})
        return names

    def replace(self, ranks: Iterable[int]) -> None:
        """Start fresh processes for these ranks. A process that still runs is killed. Raises DistError."""
        for rank in ranks:
            kept = self.all[rank]
            self.forget(rank)
            log(f"rank {rank} gets a fresh process")
            self._drop(kept)
            self.all[rank] = KeptRank(self.processes.replace(rank))

    def about(self) -> list[dict[str, Any]]:
        """Return the processes, for the session's file."""
        return [
            {
                "rank": kept.state.rank,
                "pid": kept.state.pid,
                "state": str(kept.state.state),
                "gpu_memory": kept.gpu_memory,
                "host": kept.state.host,
                "memory": self.processes.memory(kept.state.rank) if kept.lives else None,
            }
            for kept in self.all
        ]

    def join(self, link: Channel, rank: int, pid: int) -> bool:
        """Take the connection of a rank's process. Returns whether the process is one of this session."""
        if not 0 <= rank < len(self.all):
            return False
        kept = self.all[rank]
        state = next((each for each in self.processes.poll() if each.rank == rank), kept.state)
        if state.pid != pid or kept.link is not None:
            return False
        if not state.state.ended:  # `poll` reports each end once, also those of other ranks
            kept.state = state
        kept.link = link
        return True

    def arrived(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the answers of ranks whose connections are not on this machine, and connect fresh ranks."""
        answers = []
        for rank, message in self.processes.arrived():
            if "rank" in message:
                self.all[rank].link = _HostLink(self.processes, rank)
            else:
                answers.append((rank, message))
        return answers

    def to_call_first(self, ranks: Collection[int]) -> list[str]:
        """Return the payloads of the functions that fresh ones of these ranks call first."""
        return self.on_start if any(self.all[r].fresh and r in self.lost for r in ranks) else []

    def ask_to_end(self) -> list[int]:
        """Ask each rank once to end. Returns the ranks that were asked, still run and can be waited for.

        A rank that still starts has nothing to end. It is asked if it connects before the last call.
        """
        connected = [kept for kept in self.all if kept.lives and kept.link is not None]
        for kept in connected:
            if not kept.asked:
                kept.asked = True
                self.send(kept.state.rank, {"do": "end"})
        return [kept.state.rank for kept in connected if self.processes.answers(kept.state.rank)]

    def ready(self, ranks: Collection[int]) -> bool:
        """Return whether these ranks wait for a cell."""
        return all(self.all[rank].lives and self.all[rank].link is not None for rank in ranks)

    def dead(self, ranks: Collection[int]) -> list[int]:
        return [rank for rank in ranks if self.all[rank].state.state.ended]

    @property
    def pids(self) -> tuple[int, ...]:
        return self.processes.pids

    def send(self, rank: int, message: Mapping[str, Any]) -> None:
        """Send a message to a rank. A rank that is gone is found by its process's end."""
        link = self.all[rank].link
        if link is not None:
            with contextlib.suppress(OSError):
                link.send(message)

    def kill(self, ranks: Iterable[int]) -> None:
        """Kill the processes of these ranks with their groups."""
        self.processes.kill(self.all[rank].state for rank in ranks if self.all[rank].lives)

    def end(self, meanwhile: Callable[[], object]) -> str | None:
        """Kill what still runs, and release what is reserved. Returns what the user must know of that.

        `meanwhile`: is called while a platform does not answer.
        """
        self.kill(range(len(self.all)))
        for kept in self.all:
            self._drop(kept)
        return self.processes.release(meanwhile)

    def owned(self) -> set[str]:
        """Return the names that belong to the ranks."""
        return {name for kept in self.all for name in kept.assigned if name in kept.names}

    def sent(self, ranks: Collection[int]) -> dict[str, str]:
        """Return the digests of the values that all these ranks have from the notebook."""
        own = self.owned()
        first, *others = (self.all[rank] for rank in ranks)
        return {
            name: value
            for name, value in first.sent.items()
            if name in first.names
            and name not in own
            and all(other.sent.get(name) == value and name in other.names for other in others)
        }

    def uses(self, ranks: Collection[int]) -> dict[str, list[str] | None]:
        """Return the global names that each name of these ranks may read; None if nobody knows."""
        found: dict[str, list[str] | None] = {}
        for rank in ranks:
            for name, reads in self.all[rank].uses.items():
                before = found.get(name, [])
                found[name] = None if before is None or reads is None else sorted({*before, *reads})
        return found
